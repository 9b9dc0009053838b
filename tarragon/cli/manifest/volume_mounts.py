"""Compares the volumes of a job's pods with their mounts. The API server would reject the pods, not the job. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tarragon.base.errors import Problem
from tarragon.cli.jobview.pod_templates import pod_templates
from tarragon.kube.field_reader import suggestion
from tarragon.kube.meta import Json, JsonObject

_CONTAINERS = ("initContainers", "containers")
_USES = ("volumeMounts", "volumeDevices")


def mount_problems(job: JsonObject, provided: Collection[str]) -> Iterator[Problem]:
    """Yields a problem for each mount without a volume, and for names and paths that must be unique.

    `provided` are the names of volumes that the operator adds.
    """
    for path, template in pod_templates(job):
        volumes = _names(template["spec"].get("volumes"))
        for number, name in enumerate(volumes):
            if name in volumes[:number]:
                yield Problem(f"{path}.volumes[{number}].name", f"duplicate volume name {name}")
        for place, container in _containers(path, template):
            yield from _unknown_volumes(place, container, volumes, provided)
            yield from _shared_paths(place, container)


def unused_volumes(job: JsonObject) -> Iterator[Problem]:
    """Yields a problem for each volume that no container of its pod uses."""
    for path, template in pod_templates(job):
        used = {
            name for _, container in _containers(path, template) for use in _USES for name in _names(container.get(use))
        }
        for number, name in enumerate(_names(template["spec"].get("volumes"))):
            if name not in used:
                yield Problem(
                    f"{path}.volumes[{number}]",
                    f"no container mounts the volume {name}",
                    "add it to the volumeMounts of a container, or remove it",
                )


def _unknown_volumes(
    place: str, container: JsonObject, volumes: Sequence[str], provided: Collection[str]
) -> Iterator[Problem]:
    for use in _USES:
        for number, name in enumerate(_names(container.get(use))):
            if name not in volumes and name not in provided:
                remedy = suggestion(name, volumes) or "define it in the volumes of the pod"
                yield Problem(f"{place}.{use}[{number}].name", f"the pod has no volume {name}", remedy)


def _shared_paths(place: str, container: JsonObject) -> Iterator[Problem]:
    points = _names(container.get("volumeMounts"), "mountPath")
    for number, point in enumerate(points):
        if point and point in points[:number]:
            yield Problem(f"{place}.volumeMounts[{number}].mountPath", f"{point} is mounted twice")


def _containers(path: str, template: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for kind in _CONTAINERS:
        found: Json = template["spec"].get(kind)
        for number, container in enumerate(found if isinstance(found, list) else ()):
            if isinstance(container, Mapping):
                yield f"{path}.{kind}[{number}]", container


def _names(values: Json, field: str = "name") -> Sequence[str]:
    """The names of the items, in their order; empty for those that are not valid, which are reported elsewhere."""
    items = values if isinstance(values, list) else []
    return [str(each.get(field) or "") if isinstance(each, Mapping) else "" for each in items]
