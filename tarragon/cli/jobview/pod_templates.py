"""Finds the pod templates in a job's manifest, whatever its kind. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tarragon.kube.meta import Json, JsonObject


def pod_templates(job: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yields every pod template of a job, with the path of its spec. A SharePod is itself its template."""
    if is_pod_template(job):
        yield "spec", job
    else:
        yield from _templates(job.get("spec"), "spec")


def is_pod_template(value: JsonObject) -> bool:
    """Whether the value is a pod template: it has a spec with containers."""
    spec = value.get("spec")
    return isinstance(spec, Mapping) and isinstance(spec.get("containers"), list)


def _templates(value: Json, path: str) -> Iterator[tuple[str, JsonObject]]:
    if isinstance(value, list):
        for number, element in enumerate(value):
            yield from _templates(element, f"{path}[{number}]")
    elif isinstance(value, Mapping):
        if is_pod_template(value):
            yield f"{path}.spec", value
            return
        for name, inner in value.items():
            yield from _templates(inner, f"{path}.{name}")
