"""Logs as lines of JSON that say which replica they are from: what its pod mounts, and how its command is run.

The scripts in `programs` run in the user's image, on whatever Python that has; without one the command runs plain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from hashlib import sha256
from importlib import resources

from tarragon.job.annotations import LOGS
from tarragon.job.model import Replica, TrainingJob
from tarragon.kube.meta import Json, JsonObject

VOLUME = "tarragon-logs"
FOLDER = "/tarragon-logs"
FIELDS = "TARRAGON_LOG_FIELDS"
ENDING = "TARRAGON_LOG_ENDING"
PYTHONPATH = "PYTHONPATH"
SCRIPTS = ("json_logs.py", "json_lines.py", "json_logging.py", "sitecustomize.py")
LONGEST_JOB_NAME = 200

_RUN = (
    'for python in python3 python; do if "$python" -E -S "$0" </dev/null >/dev/null 2>&1; '
    'then exec "$python" -E -S "$0" "$@"; fi; done; exec "$@"'
)
"""The first Python that can run the script named first, runs it; else the command is run as it is."""


class Form(StrEnum):
    """How replicas log."""

    JSON = "json"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """Whose lines these are."""

    job: TrainingJob
    replica: Replica
    pod: str

    @property
    def fields(self) -> Mapping[str, str | int]:
        return {
            "job": self.job.key.name,
            "namespace": self.job.key.namespace,
            "pod": self.pod,
            "replica_type": self.replica.type.word,
            "replica_index": self.replica.index,
            "runtime_id": self.job.runtime_id or _digest(self.job.uid)[:4],
            "uid": self.job.uid,
        }


def are_json(job: TrainingJob, usual: Form) -> bool:
    """The job's own word counts, else the installation's."""
    written = job.annotations.get(LOGS, "")
    return (Form(written) if written in {*Form} else usual) is Form.JSON


def config_map(job: TrainingJob) -> JsonObject:
    """Another version of the scripts has another name: pods that mount an older one keep it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": config_map_name(job)},
        "data": dict(scripts()),
    }


def config_map_name(job: TrainingJob) -> str:
    return f"{job.key.name[:LONGEST_JOB_NAME]}-logs-{_digest(job.uid, *scripts().values())}"


def with_json(spec: JsonObject, container: str, speaker: Speaker) -> JsonObject:
    """The pod's spec with that container's lines as JSON, where they can be."""
    containers = [_speaking(each, speaker) if each.get("name") == container else each for each in spec["containers"]]
    if containers == spec["containers"]:
        return spec
    # An optional one: without the scripts the command still runs.
    volume = {"name": VOLUME, "configMap": {"name": config_map_name(speaker.job), "optional": True}}
    return {**spec, "containers": containers, "volumes": [*spec.get("volumes", []), volume]}


@cache
def scripts() -> Mapping[str, str]:
    """They never change while we run, as our own modules don't."""
    folder = resources.files(__package__) / "programs"
    return {name: (folder / name).read_text() for name in SCRIPTS}


def _speaking(container: JsonObject, speaker: Speaker) -> JsonObject:
    """Who asks for a terminal is a person. Of an image's own command nothing is known here: see `_on_the_path`."""
    if container.get("tty"):
        return container
    found = _wrapped(container) if container.get("command") else _on_the_path(container)
    if found is None:
        return container
    own = {FIELDS: json.dumps(speaker.fields), **_ending(container)}
    env = [variable for variable in found.get("env", []) if variable.get("name") not in own]
    mount = {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}
    return {
        **found,
        "env": [*env, *({"name": name, "value": value} for name, value in own.items())],
        "volumeMounts": [*found.get("volumeMounts", []), mount],
    }


def _wrapped(container: JsonObject) -> JsonObject:
    return {**container, "command": ["sh", "-c", _RUN, f"{FOLDER}/{SCRIPTS[0]}", *container["command"]]}


def _on_the_path(container: JsonObject) -> JsonObject | None:
    """Only where the manifest sets PYTHONPATH anyway: set by us, it would replace the image's own."""
    env = container.get("env", [])
    if not any(variable.get("name") == PYTHONPATH and "valueFrom" not in variable for variable in env):
        return None
    return {**container, "env": [_prefixed(variable) for variable in env]}


def _prefixed(variable: JsonObject) -> JsonObject:
    if variable.get("name") != PYTHONPATH or "valueFrom" in variable:
        return variable
    before = variable.get("value")
    return {**variable, "value": f"{FOLDER}:{before}" if before else FOLDER}


def _ending(container: JsonObject) -> dict[str, Json]:
    """Where the last lines go, as people read them, of a container whose failure is told by its log."""
    if container.get("terminationMessagePolicy") != "FallbackToLogsOnError":
        return {}
    return {ENDING: container.get("terminationMessagePath", "/dev/termination-log")}


def _digest(*texts: str) -> str:
    return sha256("\0".join(texts).encode(errors="surrogatepass")).hexdigest()[:10]
