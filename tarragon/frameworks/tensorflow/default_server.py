"""The parameter server of who left it to the operator: TensorFlow's standard server, from a script in a ConfigMap.

A PS without template gets one; one without a container called tensorflow gets that container beside its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources

from tarragon.frameworks.tensorflow.fields import MAIN_CONTAINER
from tarragon.frameworks.tensorflow.runtime import digest
from tarragon.job.model import Replica, TrainingJob
from tarragon.kube.meta import JsonObject

IMAGE = "tensorflow/tensorflow:1.3.0"
"""Where spec.tfImage says nothing."""

SCRIPT = "grpc_tensorflow_server.py"
FOLDER = "/ps-server"
VOLUME = "ps-config-volume"
POD_POLICY = "OnFailure"

MOUNT: JsonObject = {"name": VOLUME, "mountPath": FOLDER}

_PYTHON = ("sh", "-c", 'exec "$(command -v python || command -v python3 || echo python)" "$@"', "python")
"""Images of 2017 have no python3 but `python`, some of today the other way round."""


def is_wanted(template: JsonObject) -> bool:
    """Whether nothing in it says what serves, or only what `completed` says."""
    main = _main(template)
    if main is None:
        return True
    is_ours = any(mount.get("name") == VOLUME for mount in main.get("volumeMounts", []))
    has_volume = any(volume.get("name") == VOLUME for volume in template.get("spec", {}).get("volumes", []))
    return is_ours and not has_volume and not main.get("command") and not main.get("args")


def completed(template: JsonObject, image: str) -> JsonObject:
    """With the container that serves. Which volume it mounts is not written: that is of this very job."""
    spec = template.get("spec", {})
    if _main(template) is not None:
        return template
    container = {"name": MAIN_CONTAINER, "image": image, "volumeMounts": [MOUNT]}
    containers = [*spec.get("containers", []), container]
    return {**template, "spec": {"restartPolicy": POD_POLICY, **spec, "containers": containers}}


def mounted(template: JsonObject, config_map: str) -> JsonObject:
    """A completed template with the volume."""
    spec = template["spec"]
    volume = {"name": VOLUME, "configMap": {"name": config_map}}
    return {**template, "spec": {**spec, "volumes": [*spec.get("volumes", []), volume]}}


def config_map_name(runtime_id: str, uid: str) -> str:
    """Of this job alone, also where its runtime id came with its manifest from an earlier one."""
    return f"cm-ps-{runtime_id}-{digest(8, VOLUME, uid)}"


def objects(job: TrainingJob) -> Iterator[JsonObject]:
    """Of a framework: the ConfigMap with the script, where a parameter server is left to us."""
    if any(group.is_default_server for group in job.groups):
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": config_map_name(job.runtime_id, job.uid)},
            "data": {SCRIPT: script()},
        }


def command(replica: Replica, cluster: str) -> list[str]:
    arguments = ["--cluster_spec", cluster, "--job_name", replica.type.word, "--task_id", str(replica.index)]
    return [*_PYTHON, f"{FOLDER}/{SCRIPT}", *arguments]


def cluster_spec(hosts: Mapping[str, list[str]]) -> str:
    """`master|host:port,ps|host:port;host:port`."""
    return ",".join(f"{kind}|{';'.join(hosts[kind])}" for kind in sorted(hosts))


@cache
def script() -> str:
    """It never changes while we run, as our own modules don't."""
    return (resources.files(__package__) / "programs" / SCRIPT).read_text()


def _main(template: JsonObject) -> JsonObject | None:
    containers: list[JsonObject] = template.get("spec", {}).get("containers", [])
    return next((container for container in containers if container.get("name") == MAIN_CONTAINER), None)
