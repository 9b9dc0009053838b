"""What a cluster has beside the plain API that jobs may count on: gang schedulers, classes of storage. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import MappingProxyType

from tarragon.cli.output.finding import Finding
from tarragon.cli.output.words import count, listed
from tarragon.kube.meta import JsonObject

_SCHEDULERS = MappingProxyType(
    {
        "scheduling.volcano.sh": "Volcano",
        "scheduling.x-k8s.io": "the coscheduling plugin",
        "scheduling.run.ai": "KAI",
        "kueue.x-k8s.io": "Kueue",
    }
)
_DEFAULT = "storageclass.kubernetes.io/is-default-class"


def gangs(groups: Collection[str]) -> Finding:
    """By the groups of the API. Ours needs none of them."""
    found = [name for group, name in _SCHEDULERS.items() if group in groups]
    own = "Tarragon places gangs itself"
    if not found:
        return Finding("ok", "gangs", f"{own}; no other gang scheduler is here")
    text = f"{own}; {listed(found)} {'is' if len(found) == 1 else 'are'} here, too"
    return Finding("ok", "gangs", f"{text}, for jobs that name another schedulerName or managedBy")


def volumes(classes: Sequence[JsonObject] | None) -> Finding:
    if classes is None:
        return Finding("ok", "volumes", "you may not list storage classes: whether claims get volumes can't be told")
    if not classes:
        text = "there is no storage class: claims wait until somebody makes volumes for them"
        return Finding("warning", "volumes", text, "name volumes that are there, or ask for a storage class")
    names = [_described(each) for each in classes]
    if any(_is_default(each) for each in classes):
        return Finding("ok", "volumes", f"{count(len(classes), 'storage class')}: {listed(names)}")
    text = f"none of the storage classes is the default: {listed(names)}"
    return Finding("warning", "volumes", text, "name one in each claim: spec.storageClassName")


def _is_default(body: JsonObject) -> bool:
    return (body["metadata"].get("annotations") or {}).get(_DEFAULT) == "true"


def _described(body: JsonObject) -> str:
    marks = ["default"] if _is_default(body) else []
    marks += ["binds late"] if body.get("volumeBindingMode") == "WaitForFirstConsumer" else []
    return str(body["metadata"]["name"]) + (f" ({', '.join(marks)})" if marks else "")
