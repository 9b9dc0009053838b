"""What a container that asks for an accelerator gets besides: v1alpha1's controller config, for all generations.

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
from tarragon.kube.podtemplate import main_container

T = TypeVar("T")

ACCELERATORS, SERVER_FILE = "accelerators", "grpcServerFilePath"
VOLUMES, ENV = "volumes", "envVars"
NAME, HOST_PATH, MOUNT_PATH, VALUE = "name", "hostPath", "mountPath", "value"
OTHER_NAME = "{name}-accelerator"
"""Of a volume whose name the job has for something else."""

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
    """`accelerators`: by the name of the resource that a container asks for."""

    accelerators: Mapping[str, Accelerator] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()


# ------------------------------------------------------------------------------------------------------------- the pods


def equipped(spec: JsonObject, main: str, accelerators: Mapping[str, Accelerator]) -> JsonObject:
    """The spec of a pod with all that its main container's accelerators bring. What it has already stays as it is."""
    container = main_container({"spec": spec}, main)
    if container is None or not accelerators:
        return spec
    for accelerator in _asked_for(container, accelerators):
        for volume in accelerator.volumes:
            spec, container = _mounted(spec, container, volume)
        container = _told(container, accelerator.env)
    return {
        **spec,
        "containers": [container if each["name"] == container["name"] else each for each in spec["containers"]],
    }


def _asked_for(container: JsonObject, accelerators: Mapping[str, Accelerator]) -> Iterator[Accelerator]:
    resources = container.get("resources") or {}
    keys = {*(resources.get("limits") or {}), *(resources.get("requests") or {})}
    return (accelerator for name, accelerator in accelerators.items() if name in keys)


def _mounted(spec: JsonObject, container: JsonObject, volume: HostVolume) -> tuple[JsonObject, JsonObject]:
    mounts = container.get("volumeMounts") or []
    if any(mount.get(MOUNT_PATH) == volume.mount_path for mount in mounts):
        return spec, container
    volumes = spec.get("volumes") or []
    ours: JsonObject = {NAME: volume.name, "hostPath": {"path": volume.host_path}}
    taken = next((each for each in volumes if each.get(NAME) == volume.name), None)
    if taken is not None and (taken.get("hostPath") or {}).get("path") != volume.host_path:
        ours = {**ours, NAME: OTHER_NAME.format(name=volume.name)}
    if all(each.get(NAME) != ours[NAME] for each in volumes):
        spec = {**spec, "volumes": [*volumes, ours]}
    return spec, {**container, "volumeMounts": [*mounts, {NAME: ours[NAME], MOUNT_PATH: volume.mount_path}]}


def _told(container: JsonObject, env: Mapping[str, str]) -> JsonObject:
    known = container.get("env") or []
    names = {variable.get(NAME) for variable in known}
    news = [{NAME: name, VALUE: value} for name, value in env.items() if name not in names]
    return {**container, "env": [*known, *news]} if news else container


# ------------------------------------------------------------------------------------------------------------- the file


def read(document: Json) -> ControllerConfig:
    """What a controller config file says, or all that is wrong with it."""
    if document is None:
        return ControllerConfig()
    problems: list[Problem] = []
    fields = _fields(document, "", (ACCELERATORS, SERVER_FILE), problems)
    warnings = []
    if SERVER_FILE in fields:
        said = "is ignored: every job is given the script of the standard server in a ConfigMap of its own"
        warnings.append(Problem(SERVER_FILE, said))
    found = fields.get(ACCELERATORS)
    if found is not None and not isinstance(found, Mapping):
        problems.append(Problem(ACCELERATORS, "must map names of resources to what they bring"))
    accelerators = {
        str(name): _accelerator(said, f"{ACCELERATORS}[{name}]", problems)
        for name, said in (found.items() if isinstance(found, Mapping) else ())
    }
    return ControllerConfig(accelerators=accelerators, problems=problems, warnings=warnings)


def _accelerator(said: Json, path: str, problems: list[Problem]) -> Accelerator:
    fields = _fields(said, path, (VOLUMES, ENV), problems)
    volumes = list(_each(fields.get(VOLUMES), f"{path}.{VOLUMES}", _volume, problems))
    env = list(_each(fields.get(ENV), f"{path}.{ENV}", _variable, problems))
    problems += _repeated(f"{path}.{VOLUMES}", NAME, (volume.name for volume in volumes))
    problems += _repeated(f"{path}.{VOLUMES}", MOUNT_PATH, (volume.mount_path for volume in volumes))
    problems += _repeated(f"{path}.{ENV}", NAME, (name for name, _ in env))
    return Accelerator(volumes=volumes, env=dict(env))


def _volume(said: Json, path: str, problems: list[Problem]) -> HostVolume:
    fields = _fields(said, path, (NAME, HOST_PATH, MOUNT_PATH), problems)
    name = _text(fields, NAME, path, problems)
    if name and not _LABEL.fullmatch(name):
        problems.append(Problem(f"{path}.{NAME}", f"{name!r} is no name of a volume", "lower-case letters, digits, -"))
    places = [_text(fields, each, path, problems) for each in (HOST_PATH, MOUNT_PATH)]
    for where, place in zip((HOST_PATH, MOUNT_PATH), places, strict=True):
        if place and not place.startswith("/"):
            problems.append(Problem(f"{path}.{where}", f"{place!r} is no absolute path", "it begins with /"))
    return HostVolume(name=name, host_path=places[0], mount_path=places[1])


def _variable(said: Json, path: str, problems: list[Problem]) -> tuple[str, str]:
    fields = _fields(said, path, (NAME, VALUE), problems)
    name = _text(fields, NAME, path, problems)
    if name and not _VARIABLE.fullmatch(name):
        problems.append(Problem(f"{path}.{NAME}", f"{name!r} is no name of a variable"))
    value = fields.get(VALUE, "")
    if not isinstance(value, str):
        problems.append(Problem(f"{path}.{VALUE}", f"must be a text, not {value!r}", "put it in quotes"))
    return name, str(value)


def _fields(said: Json, path: str, known: Sequence[str], problems: list[Problem]) -> dict[str, Json]:
    """Under their own names: the first operators read them whatever their case."""
    if said is None:
        return {}
    if not isinstance(said, Mapping):
        problems.append(Problem(path, f"must be an object with some of {', '.join(known)}, not {said!r}"))
        return {}
    own = {name.lower(): name for name in known}
    found: dict[str, Json] = {}
    for written, value in said.items():
        name = own.get(str(written).lower())
        if name is not None:
            found[name] = value
            continue
        near = get_close_matches(str(written), known, 1)
        remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        problems.append(Problem(f"{path}.{written}" if path else str(written), "is not a known field", remedy))
    return found


def _each(
    said: Json, path: str, reader: Callable[[Json, str, list[Problem]], T], problems: list[Problem]
) -> Iterator[T]:
    if said is not None and not isinstance(said, list):
        problems.append(Problem(path, f"must be a list, not {said!r}", "begin each of its items with -"))
        return
    for index, each in enumerate(said or ()):
        yield reader(each, f"{path}[{index}]", problems)


def _text(fields: Mapping[str, Json], name: str, path: str, problems: list[Problem]) -> str:
    value = fields.get(name)
    if isinstance(value, str) and value:
        return value
    problems.append(Problem(f"{path}.{name}", "is missing" if value is None else f"must be a text, not {value!r}"))
    return ""


def _repeated(path: str, name: str, values: Iterable[str]) -> Iterator[Problem]:
    seen: set[str] = set()
    for value in values:
        if value and value in seen:
            yield Problem(path, f"has the {name} {value!r} more than once")
        seen.add(value)
