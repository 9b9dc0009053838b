"""How many replicas an autoscaler wants, by what its pods use. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tarragon.base.quantity import milli
from tarragon.kube.core import Pod
from tarragon.localcluster.controllers.workloads.model import Json

TOLERANCE = 0.1
"""A part of the target; what is nearer changes nothing."""
CALM_SECONDS = 300.0
"""So long the largest number that was wanted is kept before there are fewer."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one pod uses and has asked for of a resource, in thousandths."""

    used: int
    asked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One metric: how many replicas it wants, and what the status says of it. `trouble`: why it could not be read."""

    replicas: int = 0
    current: Json | None = None
    trouble: str = ""


def asked_of(pod: Pod, resource: str) -> int | None:
    """None if a container asks for nothing of it: then there is no percentage of anything."""
    total = 0
    for container in pod.spec.containers:
        found = container.resources.requests.get(resource, container.resources.limits.get(resource))
        if found is None:
            return None
        total += milli(found)
    return total


def read(metric: Json, loads: Sequence[Load], replicas: int) -> Reading:
    """`loads` of the ready pods that were measured."""
    name, target = metric["resource"]["name"], metric["resource"]["target"]
    if not loads:
        return Reading(trouble=f"failed to get {name} utilization: no metrics of running pods")
    used = sum(load.used for load in loads)
    average = {"averageValue": f"{used // len(loads)}m"}
    if target["type"] == "Utilization":
        asked = sum(load.asked for load in loads)
        if not all(load.asked for load in loads):
            return Reading(trouble=f"failed to get {name} utilization: missing request for {name} in a container")
        percent = used * 100 // asked
        average["averageUtilization"] = percent  # type: ignore[assignment]
        ratio = percent / target["averageUtilization"]
    else:
        ratio = used / len(loads) / max(1, milli(target["averageValue"]))
    wanted = replicas if abs(ratio - 1) <= TOLERANCE else math.ceil(ratio * len(loads) - 1e-9)
    return Reading(replicas=wanted, current={"type": "Resource", "resource": {"name": name, "current": average}})


def within(wanted: int, spec: Mapping[str, int]) -> int:
    return max(spec.get("minReplicas") or 1, min(wanted, spec["maxReplicas"]))


def calm_seconds(spec: Json) -> float:
    said = ((spec.get("behavior") or {}).get("scaleDown") or {}).get("stabilizationWindowSeconds")
    return CALM_SECONDS if said is None else float(said)
