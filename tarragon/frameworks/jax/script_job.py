"""The JAXJob of a script."""

from __future__ import annotations

from tarragon.frameworks.kubeflow.fields import GROUP
from tarragon.frameworks.script_job import ScriptJob, ScriptSupport, container_comments, pod_template
from tarragon.kube.meta import JsonObject

_SPECS = "jaxReplicaSpecs"
IMAGE = "nvcr.io/nvidia/jax:26.07-py3"


def manifest(job: ScriptJob) -> JsonObject:
    template = pod_template(job, "jax", job.command, gpus=job.gpus)
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "JAXJob",
        "metadata": {"name": job.name},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "Running"},
            _SPECS: {"Worker": {"replicas": job.workers, "restartPolicy": "Never", "template": template}},
        },
    }


SCRIPTS = ScriptSupport(
    modules=frozenset({"jax", "flax", "optax"}),
    image=IMAGE,
    gpu_image=IMAGE,
    manifest=manifest,
    comments={
        "spec.runPolicy.cleanPodPolicy": ("Workers that still run when the job has failed are ended.",),
        f"spec.{_SPECS}.Worker": (
            "Each finds COORDINATOR_ADDRESS, NUM_PROCESSES and PROCESS_ID, which jax.distributed.initialize takes.",
            "The job succeeds when all of them have.",
        ),
        f"spec.{_SPECS}.Worker.restartPolicy": (
            "OnFailure restarts all workers when one fails: for scripts that load their last checkpoint.",
        ),
        **container_comments(f"spec.{_SPECS}.Worker.template"),
    },
)
