"""For each generation of MPIJob, jobs that together have every loss of conversion."""

from __future__ import annotations

from typing import Any

from tarragon.frameworks.mpi.conversion.convert import convert
from tarragon.frameworks.mpi.conversion.generations import GENERATIONS, MPIJobGeneration
from tests.frameworks.mpi_jobs import mpijob, short_job, template

WORKER: Any = {"spec": {"containers": [{"name": "proxy", "image": "a"}, {"name": "train", "image": "b"}]}}


def jobs(generation: MPIJobGeneration) -> list[dict[str, Any]]:
    if generation.has_one_template:
        return [short_job(gpus=4), short_job(replicas=2, launcherOnMaster=True)]
    fields: dict[str, Any] = {
        "mainContainer": "train",
        "sshAuthMountPath": "/keys",
        "mpiImplementation": "Intel",
        "launcherCreationPolicy": "AtStartup",
        "runLauncherAsWorker": True,
    }
    rich = mpijob(generation.name, **{name: value for name, value in fields.items() if name in generation.fields})
    rich["spec"]["mpiReplicaSpecs"]["Worker"]["template"] = WORKER
    on_gpu = mpijob(generation.name)
    launcher = on_gpu["spec"]["mpiReplicaSpecs"]["Launcher"]
    launcher["template"] = template(command=["mpirun"], resources={"limits": {"nvidia.com/gpu": 1}})
    return [rich, on_gpu, *(_restarted(generation, str(policy)) for policy in sorted(generation.valid_restarts))]


def lost(source: str, target: str) -> set[str]:
    """The topics of all losses between two generations."""
    made = [convert(job, source, target) for job in jobs(GENERATIONS[source])]
    return {loss.topic for each in made for loss in each.losses}


def _restarted(generation: MPIJobGeneration, policy: str) -> dict[str, Any]:
    job = mpijob(generation.name)
    for group in job["spec"]["mpiReplicaSpecs"].values():
        group["restartPolicy"] = policy
    return job
