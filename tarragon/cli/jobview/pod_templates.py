"""The pod templates of a job's document, whatever its shape. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tarragon.kube.meta import Json, JsonObject


def templates(job: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Every pod template of a job of any shape, with its path."""
    yield from _templates(job.get("spec"), "spec")


def is_template(value: JsonObject) -> bool:
    """A pod template is what has a spec with containers."""
    spec = value.get("spec")
    return isinstance(spec, Mapping) and isinstance(spec.get("containers"), list)


def _templates(value: Json, path: str) -> Iterator[tuple[str, JsonObject]]:
    if isinstance(value, list):
        for number, element in enumerate(value):
            yield from _templates(element, f"{path}[{number}]")
    elif isinstance(value, Mapping):
        if is_template(value):
            yield path, value
            return
        for name, inner in value.items():
            yield from _templates(inner, f"{path}.{name}")
