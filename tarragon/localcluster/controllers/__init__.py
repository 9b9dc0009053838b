"""The small controllers that make a bare API a Kubernetes: each watches a few kinds and keeps one promise."""

from __future__ import annotations
