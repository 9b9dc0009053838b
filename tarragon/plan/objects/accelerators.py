"""Adds volumes and variables to containers that request an accelerator: v1alpha1's controller config for all jobs.

accelerators:
  nvidia.com/gpu:
    volumes: [{name: lib, hostPath: /home/kubernetes/bin/nvidia, mountPath: /usr/local/nvidia}]
    envVars: [{name: LD_LIBRARY_PATH, value: /usr/local/nvidia/lib64}]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeVar

from tarragon.base.errors import Problem
from tarragon.kube.meta import Json, JsonObject
from tarragon.kube.pod_validation import main_container

T = TypeVar("T")

ACCELERATORS, SERVER_FILE = "accelerators", "grpcServerFilePath"
VOLUMES, ENV = "volumes", "envVars"
NAME, HOST_PATH, MOUNT_PATH, VALUE = "name", "hostPath", "mountPath", "value"
FALLBACK_VOLUME_NAME = "{name}-accelerator"
"""The name of the added volume if the pod has another volume of the configured name."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostVolume:
    name: str
    host_path: str
    mount_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    volumes: Sequence[HostVolume] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """A decoded controller config file. `accelerators` is keyed by the resource that a container requests."""

    accelerators: Mapping[str, Accelerator] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()


# ------------------------------------------------------------------------------------------------------------- the pods


def with_accelerators(spec: JsonObject, main: str, accelerators: Mapping[str, Accelerator]) -> JsonObject:
    """Return the pod spec with what its main container's accelerators add. Existing mounts and variables are kept."""
    container = main_container({"spec": spec}, main)
    if container is None or not accelerators:
        return spec
    for accelerator in _requested(container, accelerators):
        for volume in accelerator.volumes:
            spec, container = _mounted(spec, container, volume)
        container = _with_env(container, accelerator.env)
    return {
        **spec,
        "containers": [container if each["name"] == container["name"] else each for each in spec["containers"]],
    }


def _requested(container: JsonObject, accelerators: Mapping[str, Accelerator]) -> Iterator[Accelerator]:
    resources = container.get("resources") or {}
    keys = {*(resources.get("limits") or {}), *(resources.get("requests") or {})}
    return (accelerator for name, accelerator in accelerators.items() if name in keys)


def _mounted(spec: JsonObject, container: JsonObject, volume: HostVolume) -> tuple[JsonObject, JsonObject]:
    mounts = container.get("volumeMounts") or []
    if any(mount.get(MOUNT_PATH) == volume.mount_path for mount in mounts):
        return spec, container
    volumes = spec.get("volumes") or []
    host_volume: JsonObject = {NAME: volume.name, "hostPath": {"path": volume.host_path}}
    same_name = next((each for each in volumes if each.get(NAME) == volume.name), None)
    if same_name is not None and (same_name.get("hostPath") or {}).get("path") != volume.host_path:
        host_volume = {**host_volume, NAME: FALLBACK_VOLUME_NAME.format(name=volume.name)}
    if all(each.get(NAME) != host_volume[NAME] for each in volumes):
        spec = {**spec, "volumes": [*volumes, host_volume]}
    return spec, {**container, "volumeMounts": [*mounts, {NAME: host_volume[NAME], MOUNT_PATH: volume.mount_path}]}


def _with_env(container: JsonObject, env: Mapping[str, str]) -> JsonObject:
    existing = container.get("env") or []
    names = {variable.get(NAME) for variable in existing}
    missing = [{NAME: name, VALUE: value} for name, value in env.items() if name not in names]
    return {**container, "env": [*existing, *missing]} if missing else container


# ------------------------------------------------------------------------------------------------------------- the file


def decode_controller_config(document: Json) -> ControllerConfig:
    """Decode a controller config file; the result lists all its problems."""
    if document is None:
        return ControllerConfig()
    problems: list[Problem] = []
    fields = _fields(document, "", (ACCELERATORS, SERVER_FILE), problems)
    warnings = []
    if SERVER_FILE in fields:
        message = "is ignored: each job gets its own ConfigMap with the script of the standard server"
        warnings.append(Problem(SERVER_FILE, message))
    entries = fields.get(ACCELERATORS)
    if entries is not None and not isinstance(entries, Mapping):
        problems.append(Problem(ACCELERATORS, "must map resource names to volumes and envVars"))
    accelerators = {
        str(name): _accelerator(value, f"{ACCELERATORS}[{name}]", problems)
        for name, value in (entries.items() if isinstance(entries, Mapping) else ())
    }
    return ControllerConfig(accelerators=accelerators, problems=problems, warnings=warnings)


def _accelerator(entry: Json, path: str, problems: list[Problem]) -> Accelerator:
    fields = _fields(entry, path, (VOLUMES, ENV), problems)
    volumes = list(_each(fields.get(VOLUMES), f"{path}.{VOLUMES}", _volume, problems))
    env = list(_each(fields.get(ENV), f"{path}.{ENV}", _variable, problems))
    problems += _repeated(f"{path}.{VOLUMES}", NAME, (volume.name for volume in volumes))
    problems += _repeated(f"{path}.{VOLUMES}", MOUNT_PATH, (volume.mount_path for volume in volumes))
    problems += _repeated(f"{path}.{ENV}", NAME, (name for name, _ in env))
    return Accelerator(volumes=volumes, env=dict(env))


def _volume(entry: Json, path: str, problems: list[Problem]) -> HostVolume:
    fields = _fields(entry, path, (NAME, HOST_PATH, MOUNT_PATH), problems)
    name = _required_text(fields, NAME, path, problems)
    if name and not _LABEL.fullmatch(name):
        problems.append(
            Problem(f"{path}.{NAME}", f"{name!r} is not a valid volume name", "use lower-case letters, digits and -")
        )
    paths = [_required_text(fields, each, path, problems) for each in (HOST_PATH, MOUNT_PATH)]
    for field_name, directory in zip((HOST_PATH, MOUNT_PATH), paths, strict=True):
        if directory and not directory.startswith("/"):
            problems.append(
                Problem(f"{path}.{field_name}", f"{directory!r} is not an absolute path", "start it with /")
            )
    return HostVolume(name=name, host_path=paths[0], mount_path=paths[1])


def _variable(entry: Json, path: str, problems: list[Problem]) -> tuple[str, str]:
    fields = _fields(entry, path, (NAME, VALUE), problems)
    name = _required_text(fields, NAME, path, problems)
    if name and not _VARIABLE.fullmatch(name):
        problems.append(Problem(f"{path}.{NAME}", f"{name!r} is not a valid variable name"))
    value = fields.get(VALUE, "")
    if not isinstance(value, str):
        problems.append(Problem(f"{path}.{VALUE}", f"must be a string, not {value!r}", "put it in quotes"))
    return name, str(value)


def _fields(document: Json, path: str, known: Sequence[str], problems: list[Problem]) -> dict[str, Json]:
    """Return the fields by their canonical names. Names are case-insensitive, as in the v1alpha1 operator."""
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        problems.append(Problem(path, f"must be an object with the fields {', '.join(known)}, not {document!r}"))
        return {}
    canonical_names = {name.lower(): name for name in known}
    fields: dict[str, Json] = {}
    for key, value in document.items():
        name = canonical_names.get(str(key).lower())
        if name is not None:
            fields[name] = value
            continue
        matches = get_close_matches(str(key), known, 1)
        remedy = f"did you mean {matches[0]}?" if matches else f"known fields are {', '.join(known)}"
        problems.append(Problem(f"{path}.{key}" if path else str(key), "is not a known field", remedy))
    return fields


def _each(
    value: Json, path: str, reader: Callable[[Json, str, list[Problem]], T], problems: list[Problem]
) -> Iterator[T]:
    if value is not None and not isinstance(value, list):
        problems.append(Problem(path, f"must be a list, not {value!r}", "start each item with -"))
        return
    for index, each in enumerate(value or ()):
        yield reader(each, f"{path}[{index}]", problems)


def _required_text(fields: Mapping[str, Json], name: str, path: str, problems: list[Problem]) -> str:
    value = fields.get(name)
    if isinstance(value, str) and value:
        return value
    problems.append(Problem(f"{path}.{name}", "is missing" if value is None else f"must be a string, not {value!r}"))
    return ""


def _repeated(path: str, name: str, values: Iterable[str]) -> Iterator[Problem]:
    seen: set[str] = set()
    for value in values:
        if value and value in seen:
            yield Problem(path, f"has the {name} {value!r} more than once")
        seen.add(value)
