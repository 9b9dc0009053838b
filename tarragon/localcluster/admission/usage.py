"""Computes how much of each resource that a quota can limit an object uses, in thousandths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tarragon.base import quantity
from tarragon.base.quantity import canonical, parse_milli
from tarragon.kube.core import PodSpec
from tarragon.kube.scheduling.pod_requests import pod_limits, pod_requests

Usage = dict[str, int]

ONE = 1000
"""One object, in thousandths."""

COMPUTE = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""Resources that every container of a pod must set when a quota limits them."""

_OLD_NAMES = frozenset({"configmaps", "persistentvolumeclaims", "resourcequotas", "secrets", "services"})
_FINISHED = frozenset({"Failed", "Succeeded"})
_IN_BYTES = ("memory", "storage", "hugepages-")
_PLAIN = ("cpu", "memory", "ephemeral-storage")


def usage_of(kind: str, thing: Mapping[str, Any]) -> Usage:
    """The usage of an object. `kind` is a full name: `pods`, `deployments.apps`."""
    used = {f"count/{kind}": ONE}
    if kind in _OLD_NAMES:
        used[kind] = ONE
    match kind:
        case "pods":
            used.update(_of_pod(thing))
        case "services":
            used.update(_of_service(thing))
        case "persistentvolumeclaims":
            used.update(_of_claim(thing))
        case _:
            pass
    return used


def plus(one: Usage, other: Mapping[str, int], sign: int = 1) -> Usage:
    return {name: one.get(name, 0) + sign * other.get(name, 0) for name in {**one, **other}}


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """The amounts as quantities, sorted by name, as a status has them."""
    return {name: _text(name, amount) for name, amount in sorted(amounts.items())}


def one_line(amounts: Mapping[str, str]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in sorted(amounts.items()))


def is_finished(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in _FINISHED


def containers(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All containers of the pod, init containers last."""
    spec = pod.get("spec") or {}
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def has_pod_level_resources(pod: Mapping[str, Any]) -> bool:
    """Whether the pod has resources of its own, so that its containers need none."""
    resources = (pod.get("spec") or {}).get("resources") or {}
    return bool(resources.get("requests") or resources.get("limits"))


def amounts(container: Mapping[str, Any], which: str) -> Usage:
    given = (container.get("resources") or {}).get(which) or {}
    return {name: parse_milli(value) for name, value in given.items()}


def _of_pod(pod: Mapping[str, Any]) -> Usage:
    if is_finished(pod):
        return {}
    used = {"pods": ONE}
    spec = msgspec.convert(pod.get("spec") or {}, PodSpec)
    for name, amount in pod_requests(spec).items():
        used[f"requests.{name}"] = amount
        if name in _PLAIN or name.startswith("hugepages-"):
            used[name] = amount
    for name, amount in pod_limits(spec).items():
        used[f"limits.{name}"] = amount
    return used


def _of_service(service: Mapping[str, Any]) -> Usage:
    spec = service.get("spec") or {}
    ports = ONE * len(spec.get("ports") or ())
    match spec.get("type"):
        case "NodePort":
            return {"services.nodeports": ports}
        case "LoadBalancer":
            own = ports if spec.get("allocateLoadBalancerNodePorts", True) else 0
            return {"services.nodeports": own, "services.loadbalancers": ONE}
        case _:
            return {}


def _of_claim(claim: Mapping[str, Any]) -> Usage:
    spec = claim.get("spec") or {}
    storage = parse_milli(((spec.get("resources") or {}).get("requests") or {}).get("storage") or 0)
    used = {"requests.storage": storage}
    if name := spec.get("storageClassName"):
        prefix = f"{name}.storageclass.storage.k8s.io/"
        used |= {f"{prefix}requests.storage": storage, f"{prefix}persistentvolumeclaims": ONE}
    return used


def _text(name: str, amount: int) -> str:
    last = name.rpartition(".")[2] if name.startswith(("requests.", "limits.")) else name
    if any(word in last for word in _IN_BYTES) and not name.endswith("persistentvolumeclaims"):
        return quantity.format_milli(amount)
    return canonical(f"{amount}m")
