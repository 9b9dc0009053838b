"""The workload kinds, whose controllers create pods."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.localcluster.kinds.kind_rows import row
from tarragon.localcluster.kinds.resource import ScalePaths, Served

SCALE = ScalePaths(
    spec_replicas=("spec", "replicas"), status_replicas=("status", "replicas"), label_selector=("spec", "selector")
)
"""The selector is an object here; custom kinds have text."""


def core_workloads() -> Sequence[Served]:
    return (_kind("", "replicationcontrollers", "ReplicationController", short="rc", sub="scale status"),)


def group_workloads() -> Sequence[Served]:
    """In the order of discovery."""
    return (
        _kind("apps", "deployments", "Deployment", short="deploy", sub="scale status"),
        _kind("apps", "replicasets", "ReplicaSet", short="rs", sub="scale status"),
        _kind("batch", "jobs", "Job", sub="status"),
    )


def _kind(group: str, plural: str, kind: str, *, short: str = "", sub: str = "") -> Served:
    scale = SCALE if "scale" in sub else None
    return row(group, plural, kind, short=short, sub=sub, categories=("all",), scale=scale)
