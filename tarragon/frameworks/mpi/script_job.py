"""The MPIJob of a script."""

from __future__ import annotations

from dataclasses import replace

from tarragon.frameworks.script_job import ScriptJob, ScriptSupport, container_comments, is_fraction, pod_template
from tarragon.kube.meta import JsonObject

_SPECS = "mpiReplicaSpecs"


def manifest(job: ScriptJob) -> JsonObject:
    """One rank for each worker, or for each of its GPUs. The launcher, which trains nothing, requests little."""
    ranks = int(job.gpus) if job.gpus not in {"", "0"} and not is_fraction(job.gpus) else 1
    words = ["mpirun", "-n", str(job.workers * ranks), *job.command]
    launcher = pod_template(replace(job, cpu="100m", memory=""), "launcher", words)
    worker = pod_template(job, "worker", (), gpus=job.gpus)
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": job.name},
        "spec": {
            "slotsPerWorker": ranks,
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
            _SPECS: {
                "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": launcher},
                "Worker": {"replicas": job.workers, "template": worker},
            },
        },
    }


SCRIPTS = ScriptSupport(
    modules=frozenset({"mpi4py", "horovod"}),
    image="",
    gpu_image="",
    manifest=manifest,
    comments={
        "spec.slotsPerWorker": ("The number of ranks on each worker.",),
        "spec.runPolicy.backoffLimit": ("How often mpirun starts again after it has failed.",),
        f"spec.{_SPECS}.Launcher": ("Runs mpirun, whose result is the job's.",),
        f"spec.{_SPECS}.Worker": ("Where the ranks run. mpirun finds them in a host file, and starts them.",),
        **container_comments(f"spec.{_SPECS}.Launcher.template"),
    },
)
