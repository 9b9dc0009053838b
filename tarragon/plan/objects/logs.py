"""Makes replicas log JSON lines that name the replica: adds a volume with scripts and wraps the container's command.

The scripts in `programs` run in the user's image, with any Python there; without one the command runs unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from hashlib import sha256
from importlib import resources

from tarragon.frameworks.owned_objects import OwnedObject, Upkeep
from tarragon.job.annotations import LOGS_ANNOTATION
from tarragon.job.model import Replica, TrainingJob
from tarragon.kube.core import CONFIG_MAPS
from tarragon.kube.meta import Json, JsonObject

VOLUME = "tarragon-logs"
MOUNT_PATH = "/tarragon-logs"
FIELDS_VARIABLE = "TARRAGON_LOG_FIELDS"
TERMINATION_PATH_VARIABLE = "TARRAGON_LOG_ENDING"
PYTHONPATH = "PYTHONPATH"
SCRIPTS = ("json_logs.py", "json_lines.py", "json_logging.py", "sitecustomize.py")
MAX_JOB_NAME_LENGTH = 200

_WRAPPER = (
    'for python in python3 python; do if "$python" -E -S "$0" </dev/null >/dev/null 2>&1; '
    'then exec "$python" -E -S "$0" "$@"; fi; done; exec "$@"'
)
"""Runs the script ($0) with the first Python that can run it; without one, runs the command as it is."""


class LogFormat(StrEnum):
    """The log format of replicas."""

    JSON = "json"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """The replica whose lines are logged."""

    job: TrainingJob
    replica: Replica
    pod: str

    @property
    def fields(self) -> Mapping[str, str | int]:
        return {
            "job": self.job.key.name,
            "namespace": self.job.key.namespace,
            "pod": self.pod,
            "replica_type": self.replica.type.lower(),
            "replica_index": self.replica.index,
            "runtime_id": self.job.runtime_id or _digest(self.job.uid)[:4],
            "uid": self.job.uid,
        }


def logs_json(job: TrainingJob, default: LogFormat) -> bool:
    """Whether the job logs JSON: by its annotation, else by the operator's default."""
    log_format = job.annotations.get(LOGS_ANNOTATION, "")
    return (LogFormat(log_format) if log_format in {*LogFormat} else default) is LogFormat.JSON


def config_map(job: TrainingJob) -> OwnedObject:
    """Return the ConfigMap of the scripts. Its name depends on their content: older pods keep the one they mount."""
    body = {"metadata": {"name": config_map_name(job)}, "data": dict(scripts())}
    return OwnedObject(resource=CONFIG_MAPS, body=body, upkeep=Upkeep.UNIQUE)


def config_map_name(job: TrainingJob) -> str:
    return f"{job.key.name[:MAX_JOB_NAME_LENGTH]}-logs-{_digest(job.uid, *scripts().values())}"


def with_json_logs(spec: JsonObject, container: str, speaker: LogSource) -> JsonObject:
    """Return the pod spec with JSON logs for the container, or unchanged where they are not possible."""
    containers = [
        _with_scripts(each, speaker) if each.get("name") == container else each for each in spec["containers"]
    ]
    if containers == spec["containers"]:
        return spec
    # Optional: the command runs without the scripts.
    volume = {"name": VOLUME, "configMap": {"name": config_map_name(speaker.job), "optional": True}}
    return {**spec, "containers": containers, "volumes": [*spec.get("volumes", []), volume]}


@cache
def scripts() -> Mapping[str, str]:
    """Return the scripts by file name. They are cached: they never change while the process runs."""
    folder = resources.files(__package__) / "programs"
    return {name: (folder / name).read_text() for name in SCRIPTS}


def _with_scripts(container: JsonObject, speaker: LogSource) -> JsonObject:
    """Return the container with the scripts mounted and started; unchanged if it has a terminal, which a person reads.

    The command of an image is unknown here and can't be wrapped: see `_with_pythonpath`.
    """
    if container.get("tty"):
        return container
    changed = _with_wrapped_command(container) if container.get("command") else _with_pythonpath(container)
    if changed is None:
        return container
    own_env = {FIELDS_VARIABLE: json.dumps(speaker.fields), **_termination_env(container)}
    env = [variable for variable in changed.get("env", []) if variable.get("name") not in own_env]
    mount = {"name": VOLUME, "mountPath": MOUNT_PATH, "readOnly": True}
    return {
        **changed,
        "env": [*env, *({"name": name, "value": value} for name, value in own_env.items())],
        "volumeMounts": [*changed.get("volumeMounts", []), mount],
    }


def _with_wrapped_command(container: JsonObject) -> JsonObject:
    return {**container, "command": ["sh", "-c", _WRAPPER, f"{MOUNT_PATH}/{SCRIPTS[0]}", *container["command"]]}


def _with_pythonpath(container: JsonObject) -> JsonObject | None:
    """Prepend the scripts to PYTHONPATH, but only if the manifest sets it: ours would replace the image's own value."""
    env = container.get("env", [])
    if not any(variable.get("name") == PYTHONPATH and "valueFrom" not in variable for variable in env):
        return None
    return {**container, "env": [_prefixed(variable) for variable in env]}


def _prefixed(variable: JsonObject) -> JsonObject:
    if variable.get("name") != PYTHONPATH or "valueFrom" in variable:
        return variable
    value = variable.get("value")
    return {**variable, "value": f"{MOUNT_PATH}:{value}" if value else MOUNT_PATH}


def _termination_env(container: JsonObject) -> dict[str, Json]:
    """Return the variable that names the termination message file, if the message falls back to the last log lines."""
    if container.get("terminationMessagePolicy") != "FallbackToLogsOnError":
        return {}
    return {TERMINATION_PATH_VARIABLE: container.get("terminationMessagePath", "/dev/termination-log")}


def _digest(*texts: str) -> str:
    return sha256("\0".join(texts).encode(errors="surrogatepass")).hexdigest()[:10]
