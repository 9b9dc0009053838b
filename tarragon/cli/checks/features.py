"""Checks of optional cluster features that jobs may use: other gang schedulers and storage classes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import MappingProxyType

from tarragon.cli.output.finding import Finding
from tarragon.cli.output.words import count, joined
from tarragon.kube.meta import JsonObject

_SCHEDULERS = MappingProxyType(
    {
        "scheduling.volcano.sh": "Volcano",
        "scheduling.x-k8s.io": "the coscheduling plugin",
        "scheduling.run.ai": "KAI",
        "kueue.x-k8s.io": "Kueue",
    }
)
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def check_gang_schedulers(groups: Collection[str]) -> Finding:
    """Detect other gang schedulers by their API groups. Tarragon needs none of them."""
    found = [name for group, name in _SCHEDULERS.items() if group in groups]
    own = "Tarragon schedules gangs itself"
    if not found:
        return Finding("ok", "gangs", f"{own}; no other gang scheduler found")
    text = f"{own}; {joined(found)} {'is' if len(found) == 1 else 'are'} also installed"
    return Finding("ok", "gangs", f"{text}, for jobs with another schedulerName or managedBy")


def check_storage_classes(classes: Sequence[JsonObject] | None) -> Finding:
    if classes is None:
        return Finding("ok", "volumes", "unknown: you may not list storage classes")
    if not classes:
        text = "no storage class: claims stay pending until someone creates volumes for them"
        return Finding("warning", "volumes", text, "use existing volumes, or ask the administrator for a storage class")
    names = [_described(each) for each in classes]
    if any(_is_default(each) for each in classes):
        return Finding("ok", "volumes", f"{count(len(classes), 'storage class')}: {joined(names)}")
    text = f"no default storage class among {joined(names)}"
    return Finding("warning", "volumes", text, "set spec.storageClassName in each claim")


def _is_default(body: JsonObject) -> bool:
    return (body["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"


def _described(body: JsonObject) -> str:
    marks = ["default"] if _is_default(body) else []
    marks += ["WaitForFirstConsumer"] if body.get("volumeBindingMode") == "WaitForFirstConsumer" else []
    return str(body["metadata"]["name"]) + (f" ({', '.join(marks)})" if marks else "")
