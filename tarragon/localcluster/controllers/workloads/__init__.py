"""The controllers of Kubernetes' own workloads: what makes, replaces and counts the pods of deployments and jobs.

Each is a pure decision in a module of its own and a controller that carries it out. All truth is in objects: whoever
is killed between two writes is followed by one who reads them, and decides again.
"""

from __future__ import annotations
