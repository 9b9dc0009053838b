"""The TFJob of a script."""

from __future__ import annotations

from collections.abc import Iterator

from tarragon.frameworks.kubeflow.fields import GROUP
from tarragon.frameworks.script_job import (
    CHIEF,
    PARAMETER_SERVERS,
    ScriptJob,
    ScriptSupport,
    container_comments,
    pod_template,
)
from tarragon.frameworks.tensorflow.fields import KIND, MAIN_CONTAINER
from tarragon.kube.meta import Json, JsonObject

_SPECS = "tfReplicaSpecs"
IMAGE = "tensorflow/tensorflow:2.21.0"


def manifest(job: ScriptJob) -> JsonObject:
    # By default worker 0 alone decides, and the others would be ended in their last steps. With parameter servers but
    # no chief that is right: a session of TensorFlow 1 that opens after worker 0 has ended never gets ready.
    is_shared = job.workers > 1 and not job.has_chief and not job.parameter_servers
    policy = {"successPolicy": "AllWorkers"} if is_shared else {}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": KIND,
        "metadata": {"name": job.name},
        "spec": {"runPolicy": {"cleanPodPolicy": "Running"}, **policy, _SPECS: dict(_replica_specs(job))},
    }


def _replica_specs(job: ScriptJob) -> Iterator[tuple[str, Json]]:
    sizes = (("Chief", int(job.has_chief)), ("PS", job.parameter_servers), ("Worker", job.workers))
    for kind, size in sizes:
        if size:
            gpus = "" if kind == "PS" else job.gpus
            template = pod_template(job, MAIN_CONTAINER, job.command, gpus=gpus)
            yield kind, {"replicas": size, "restartPolicy": "Never", "template": template}


SCRIPTS = ScriptSupport(
    modules=frozenset({"tensorflow", "keras", "tf_keras"}),
    image=IMAGE,
    gpu_image=f"{IMAGE}-gpu",
    options=frozenset({CHIEF, PARAMETER_SERVERS}),
    manifest=manifest,
    comments={
        "spec.runPolicy.cleanPodPolicy": ("Replicas that still run when the job has its result are ended.",),
        f"spec.{_SPECS}.Chief": ("The job's result is that of the chief.",),
        f"spec.{_SPECS}.PS": ("Parameter servers run the same script, which finds its own type in TF_CONFIG.",),
        "spec.successPolicy": ("Without this line, worker 0 alone decides the job's result.",),
        f"spec.{_SPECS}.Worker": ("The script finds all addresses, its own type and its index in TF_CONFIG.",),
        f"spec.{_SPECS}.Worker.restartPolicy": (
            "OnFailure restarts a worker that fails: for scripts that load their last checkpoint.",
        ),
        **container_comments(f"spec.{_SPECS}.Worker.template"),
    },
)
