"""MPIJobs for tests: builders that set only what a test is about."""

from __future__ import annotations

import copy
from typing import Any

from tarragon.cli.manifest.dry_run import child_objects
from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.plugin import JobObservation
from tarragon.job.model import Replica
from tarragon.job.replica_state import ReplicaState
from tarragon.job.status import JobStatus
from tarragon.plan.objects.logs import LogFormat
from tests.frameworks.jobs import job_of

V1ALPHA1, V1ALPHA2, V1, V2BETA1 = (f"kubeflow.org/{version}" for version in ("v1alpha1", "v1alpha2", "v1", "v2beta1"))
EXEC = (V1ALPHA1, V1ALPHA2, V1)
Json = dict[str, Any]


def container(name: str = "main", **fields: Any) -> Json:
    return {"name": name, "image": "mpi", **fields}


def template(**fields: Any) -> Json:
    return {"spec": {"containers": [container(**fields)]}}


def mpijob(api_version: str = V2BETA1, *, workers: int | None = 2, **spec: Any) -> Json:
    """A job `pi` in the namespace `d`, with replica specs. Its template has a command for the launcher only."""
    specs: Json = {"Launcher": {"template": template(name="launcher", command=["mpirun", "pi"])}}
    if workers is not None:
        specs["Worker"] = {"replicas": workers, "template": template(name="worker")}
    given = copy.deepcopy(spec)
    for kind, fields in given.pop("specs", {}).items():
        specs.setdefault(kind, {}).update(fields)
    return {
        "apiVersion": api_version,
        "kind": "MPIJob",
        "metadata": {"name": "pi", "namespace": "d"},
        "spec": {"mpiReplicaSpecs": specs, **given},
    }


def short_job(*, pod: Json | None = None, **spec: Any) -> Json:
    """A job `pi` of v1alpha1, with one template."""
    return {
        "apiVersion": V1ALPHA1,
        "kind": "MPIJob",
        "metadata": {"name": "pi", "namespace": "d"},
        "spec": {"template": pod or template(command=["mpirun", "pi"]), **spec},
    }


def of(generation: str, *, workers: int = 2) -> Json:
    """A plain job of that generation."""
    return short_job(gpus=workers) if generation == V1ALPHA1 else mpijob(generation, workers=workers)


def objects(manifest: Json) -> dict[str, Json]:
    """What the operator creates for the job, by `Kind/name`."""
    created = child_objects(MPI, manifest, LogFormat.TEXT)
    return {f"{each['kind']}/{each['metadata']['name']}": dict(each) for each in created}


def pod(manifest: Json, name: str) -> Json:
    return objects(manifest)[f"Pod/{name}"]


def env(found: Json, number: int = 0) -> dict[str, str]:
    """The variables of a container of a pod."""
    variables = found["spec"]["containers"][number].get("env", [])
    return {each["name"]: each.get("value", "") for each in variables}


def observation(manifest: Json, states: dict[Replica, ReplicaState] | None = None, **fields: Any) -> JobObservation:
    job = job_of(manifest)
    size = job.requested_size()
    return JobObservation(
        **{
            "job": job,
            "size": size,
            "replicas": tuple(job.replicas_of_size(size)),
            "replica_states": states or {},
            "status": JobStatus(),
            **fields,
        }
    )
