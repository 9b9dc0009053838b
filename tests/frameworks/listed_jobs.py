"""Jobs with a list of replicas, as before v1alpha2: builders that set only what a test is about."""

from __future__ import annotations

from typing import Any

from tests.frameworks.jobs import template

UID = "e11f9577-b5e5-11e7-8522-42010a8e01a4"


def item(kind: str | None = None, **fields: Any) -> dict[str, Any]:
    """One of the list, with a template."""
    return {**({"tfReplicaType": kind} if kind else {}), "template": template(), **fields}


def listed(*items: Any, name: str = "j", **spec: Any) -> dict[str, Any]:
    """A v1alpha1 job; with a master alone where nothing is said."""
    return {
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": "n1", "uid": UID},
        "spec": {"replicaSpecs": list(items) or [item("MASTER")], **spec},
    }


def cluster(ps: int = 1, workers: int = 2, **spec: Any) -> dict[str, Any]:
    """A master, workers, and parameter servers that are left to the operator."""
    servers = {"tfReplicaType": "PS", "replicas": ps}
    return listed(item("MASTER"), item("WORKER", replicas=workers), servers, **spec)
