"""LimitRanges: what containers get that do not ask, and how much anybody may ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.base.quantity import milli
from tarragon.kube.codec import decode
from tarragon.localcluster.admission.usage import Usage, amounts, totals
from tarragon.localcluster.api import errors
from tarragon.localcluster.kinds.resource import Served
from tarragon.localcluster.schema.quantities import canonical
from tarragon.localcluster.storage.store import Store

Json = dict[str, Any]

RANGES = "limitranges"
NOTE = "kubernetes.io/limit-ranger"


class Limits:
    """The ranges of a namespace, applied to what is created in it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def fill_in(self, served: Served, thing: Json, namespace: str) -> None:
        """Give a pod's containers, in place, what a range says of those that do not ask."""
        if served.full_name != "pods":
            return
        for item in self._items(namespace, "Container"):
            notes = list(_filled(thing, item))
            if notes:
                annotations = thing["metadata"].setdefault("annotations", {})
                annotations[NOTE] = f"LimitRanger plugin set: {'; '.join(notes)}"

    def refuse(self, served: Served, thing: Json, namespace: str) -> None:
        """Raises Forbidden with all that is too much or too little."""
        match served.full_name:
            case "pods":
                faults = list(self._pod_faults(thing, namespace))
            case "persistentvolumeclaims":
                faults = list(self._claim_faults(thing, namespace))
            case _:
                return
        if faults:
            words = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
            raise errors.forbidden(served, thing["metadata"]["name"], words)

    def _pod_faults(self, pod: Json, namespace: str) -> Iterator[str]:
        spec = pod["spec"]
        for item in self._items(namespace, "Container"):
            for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
                yield from _faults(item, amounts(container, "requests"), amounts(container, "limits"))
        for item in self._items(namespace, "Pod"):
            yield from _faults(item, totals(pod, "requests"), totals(pod, "limits"))

    def _claim_faults(self, claim: Json, namespace: str) -> Iterator[str]:
        requests = amounts(claim["spec"], "requests")
        for item in self._items(namespace, "PersistentVolumeClaim"):
            for name, least in sorted((item.get("min") or {}).items()):
                yield from _too_little(item, name, least, requests, {})
            for name, most in sorted((item.get("max") or {}).items()):
                yield from _too_much_of_a_claim(name, most, requests)

    def _items(self, namespace: str, kind: str) -> Iterator[Mapping[str, Any]]:
        shelf = self._store.shelf(RANGES)
        if not shelf.objects:
            return
        for stored in shelf.between(namespace, None):
            for item in (decode(stored.body, dict).get("spec") or {}).get("limits") or ():
                if item.get("type") == kind:
                    yield item


def _filled(pod: Json, item: Mapping[str, Any]) -> Iterator[str]:
    """Fill in, and say what."""
    spec = pod.get("spec") or {}
    for field, title in (("containers", "container"), ("initContainers", "init container")):
        for container in spec.get(field) or ():
            resources = container.setdefault("resources", {})
            own = resources.get("limits") or {}
            # A limit that a container gives itself is its request as well, whatever the range says.
            resources["requests"] = {**own, **(resources.get("requests") or {})}
            for part, source in (("requests", "defaultRequest"), ("limits", "default")):
                given = resources.setdefault(part, {})
                missing = {name: value for name, value in (item.get(source) or {}).items() if name not in given}
                given.update(missing)
                if missing:
                    yield f"{', '.join(sorted(missing))} {part[:-1]} for {title} {container.get('name', '')}"
            container["resources"] = {part: value for part, value in resources.items() if value}


def _faults(item: Mapping[str, Any], requests: Usage, limits: Usage) -> Iterator[str]:
    for name, least in sorted((item.get("min") or {}).items()):
        yield from _too_little(item, name, least, requests, limits)
    for name, most in sorted((item.get("max") or {}).items()):
        yield from _too_much(item, name, most, requests, limits)
    for name, ratio in sorted((item.get("maxLimitRequestRatio") or {}).items()):
        yield from _too_far_apart(item, name, ratio, requests, limits)


def _too_little(item: Mapping[str, Any], name: str, least: str, requests: Usage, limits: Usage) -> Iterator[str]:
    words = f"minimum {name} usage per {item['type']} is {least}"
    if name not in requests:
        yield f"{words}.  No request is specified"
    elif requests[name] < milli(least):
        yield f"{words}, but request is {_text(requests[name])}"
    elif name in limits and limits[name] < milli(least):
        yield f"{words}, but limit is {_text(limits[name])}"


def _too_much(item: Mapping[str, Any], name: str, most: str, requests: Usage, limits: Usage) -> Iterator[str]:
    words = f"maximum {name} usage per {item['type']} is {most}"
    if name not in limits:
        yield f"{words}.  No limit is specified"
    elif limits[name] > milli(most):
        yield f"{words}, but limit is {_text(limits[name])}"
    elif requests.get(name, 0) > milli(most):
        yield f"{words}, but request is {_text(requests[name])}"


def _too_much_of_a_claim(name: str, most: str, requests: Usage) -> Iterator[str]:
    words = f"maximum {name} usage per PersistentVolumeClaim is {most}"
    if name not in requests:
        yield f"{words}.  No request is specified"
    elif requests[name] > milli(most):
        yield f"{words}, but request is {_text(requests[name])}"


def _too_far_apart(item: Mapping[str, Any], name: str, ratio: str, requests: Usage, limits: Usage) -> Iterator[str]:
    words = f"{name} max limit to request ratio per {item['type']} is {ratio}"
    if not requests.get(name):
        yield f"{words}, but no request is specified or request is 0"
    elif not limits.get(name):
        yield f"{words}, but no limit is specified or limit is 0"
    elif limits[name] / requests[name] * 1000 > milli(ratio):
        yield f"{words}, but provided ratio is {limits[name] / requests[name]:f}"


def _text(amount: int) -> str:
    """Bytes by their largest unit, all else as it is."""
    return canonical(f"{amount}m") if amount % 1_024_000 else canonical(f"{amount // 1_024_000}Ki")
