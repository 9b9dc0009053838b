"""Manifests of jobs that train nothing: commands that print, wait or fail. JSON is YAML, too."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def python(program: str, **more: Any) -> Mapping[str, Any]:
    """The container of a replica that runs a line of Python. `more` are its other fields."""
    return {"name": "tensorflow", "image": "python:3", "command": ["python", "-c", program], **more}


def command(*words: str, **more: Any) -> Mapping[str, Any]:
    """The same for any command."""
    return {**python("", **more), "command": list(words)}


def group(container: Mapping[str, Any], replicas: int = 1, volumes: Sequence[Any] = ()) -> Mapping[str, Any]:
    return {"replicas": replicas, "template": {"spec": {"containers": [container], "volumes": list(volumes)}}}


def mpi_job(name: str, **groups: Mapping[str, Any]) -> str:
    """`Launcher=group(...), Worker=group(...)`, of the newest generation."""
    return json.dumps(
        {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": {"name": name},
            "spec": {"mpiReplicaSpecs": groups},
        }
    )


def job(name: str, **groups: Mapping[str, Any]) -> str:
    """`Worker=group(...)`."""
    return json.dumps(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "metadata": {"name": name},
            "spec": {"tfReplicaSpecs": groups},
        }
    )


def by_all_workers(made: str) -> str:
    """The same job, over when all its workers are. Else it is with worker 0, whatever the others have yet to say."""
    body = json.loads(made)
    body["spec"]["successPolicy"] = "AllWorkers"
    return json.dumps(body)


def worker(name: str, program: str, replicas: int = 1, **more: Any) -> str:
    """A job of workers that run a line of Python."""
    return job(name, Worker=group(python(program, **more), replicas))
