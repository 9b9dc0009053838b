"""The default parameter server: TensorFlow's standard server, run by a script in a ConfigMap.

A PS without a template gets one. A PS without a container named tensorflow gets that container in addition to its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources

from tarragon.frameworks.owned_objects import OwnedObject, Upkeep
from tarragon.frameworks.plugin import JobObservation
from tarragon.frameworks.tensorflow.fields import MAIN_CONTAINER
from tarragon.frameworks.tensorflow.replica_list.runtime_id import digest
from tarragon.job.model import Replica
from tarragon.kube.core import CONFIG_MAPS
from tarragon.kube.meta import JsonObject

IMAGE = "tensorflow/tensorflow:1.3.0"
"""The default of spec.tfImage."""

SCRIPT = "grpc_tensorflow_server.py"
FOLDER = "/ps-server"
VOLUME = "ps-config-volume"
POD_POLICY = "OnFailure"

MOUNT: JsonObject = {"name": VOLUME, "mountPath": FOLDER}

_PYTHON = ("sh", "-c", 'exec "$(command -v python || command -v python3 || echo python)" "$@"', "python")
"""Images of 2017 have `python` but not `python3`; some of today are the other way round."""


def uses_default_server(template: JsonObject) -> bool:
    """Whether the template has no main container, or only the one that `with_server_container` added."""
    main = _main(template)
    if main is None:
        return True
    is_ours = any(mount.get("name") == VOLUME for mount in main.get("volumeMounts", []))
    has_volume = any(volume.get("name") == VOLUME for volume in template.get("spec", {}).get("volumes", []))
    return is_ours and not has_volume and not main.get("command") and not main.get("args")


def with_server_container(template: JsonObject, image: str) -> JsonObject:
    """The template with the container of the server. The volume is not included, because it belongs to one job."""
    spec = template.get("spec", {})
    if _main(template) is not None:
        return template
    container = {"name": MAIN_CONTAINER, "image": image, "volumeMounts": [MOUNT]}
    containers = [*spec.get("containers", []), container]
    return {**template, "spec": {"restartPolicy": POD_POLICY, **spec, "containers": containers}}


def with_script_volume(template: JsonObject, config_map: str) -> JsonObject:
    """The completed template with the volume of this job."""
    spec = template["spec"]
    volume = {"name": VOLUME, "configMap": {"name": config_map}}
    return {**template, "spec": {**spec, "volumes": [*spec.get("volumes", []), volume]}}


def config_map_name(runtime_id: str, uid: str) -> str:
    """A name that is unique to this job, even if its runtime id was copied from the manifest of another job."""
    return f"cm-ps-{runtime_id}-{digest(8, VOLUME, uid)}"


def owned_objects(observation: JobObservation) -> Iterator[OwnedObject]:
    """The `owned_objects` of a framework: the ConfigMap with the script, if there is a default parameter server."""
    job = observation.job
    if any(group.runs_provided_program for group in job.replica_specs):
        name = config_map_name(job.runtime_id, job.uid)
        body = {"metadata": {"name": name}, "data": {SCRIPT: script()}}
        yield OwnedObject(resource=CONFIG_MAPS, body=body, upkeep=Upkeep.UNIQUE)


def command(replica: Replica, cluster: str) -> list[str]:
    arguments = ["--cluster_spec", cluster, "--job_name", replica.type.lower(), "--task_id", str(replica.index)]
    return [*_PYTHON, f"{FOLDER}/{SCRIPT}", *arguments]


def cluster_spec(hosts: Mapping[str, list[str]]) -> str:
    """`master|host:port,ps|host:port;host:port`."""
    return ",".join(f"{kind}|{';'.join(hosts[kind])}" for kind in sorted(hosts))


@cache
def script() -> str:
    """The script. It is cached, because package files do not change while the process runs."""
    return (resources.files(__package__) / "programs" / SCRIPT).read_text()


def _main(template: JsonObject) -> JsonObject | None:
    containers: list[JsonObject] = template.get("spec", {}).get("containers", [])
    return next((container for container in containers if container.get("name") == MAIN_CONTAINER), None)
