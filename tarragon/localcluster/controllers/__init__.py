"""The controllers of the embedded cluster, as in kube-controller-manager. Begin with `workloads` or `garbage`."""

from __future__ import annotations
