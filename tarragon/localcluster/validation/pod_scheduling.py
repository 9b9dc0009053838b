"""Scheduling gates and pod-level resources of pods: defaults and validation as in Kubernetes 1.37."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tarragon.base.quantity import format_milli, parse_milli
from tarragon.kube import name_validation
from tarragon.kube.core import PodSpec, ResourceRequirements
from tarragon.kube.scheduling.pod_requests import pod_limits, pod_requests
from tarragon.localcluster.schema.field_errors import (
    FieldError,
    duplicate,
    forbidden_value,
    invalid_value,
    required,
    unsupported,
)

Json = dict[str, Any]

SCHEDULING_GATED = "SchedulingGated"
_GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"
_NATIVE = ("cpu", "memory")
_SUPPORTED = ("cpu", "hugepages-", "memory")
_HUGE_PAGES = "hugepages-"


def gated_condition(now: str) -> Json:
    """The condition of a new pod that has scheduling gates. `now` is a metav1.Time."""
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": SCHEDULING_GATED,
        "message": _GATED_MESSAGE,
        "lastTransitionTime": now,
    }


def gate_names(spec: Mapping[str, Any]) -> list[str]:
    return [str(gate.get("name", "")) for gate in spec.get("schedulingGates") or ()]


def gate_faults(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, name in enumerate(gate_names(spec)):
        place = f"spec.schedulingGates[{index}]"
        if words := name_validation.qualified(name):
            yield invalid_value(place, name, words)
        if name in seen:
            yield duplicate(place, name)
        seen.add(name)


def create_faults(pod: Mapping[str, Any]) -> Iterator[FieldError]:
    """Faults of a new pod only: a bound pod has no gates left."""
    spec = pod["spec"]
    if spec.get("nodeName") and gate_names(spec):
        yield forbidden_value("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def added_gate_faults(after: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[FieldError]:
    """Faults of an update, which may only remove gates."""
    known = set(gate_names(before))
    for index, name in enumerate(gate_names(after)):
        if name not in known:
            words = f"only deletion is allowed, but found new scheduling gate '{name}'"
            yield forbidden_value(f"spec.schedulingGates[{index}]", words)


def default_resources(spec: Json) -> None:
    """Fill in pod-level requests where there are pod-level limits: what the containers request, else the limit."""
    resources = spec.get("resources")
    limits = (resources or {}).get("limits") or {}
    if not resources or not limits:
        return
    of_containers = pod_requests(_without_own(spec))
    requested = {name: format_milli(of_containers[name]) for name in _NATIVE if name in of_containers}
    limited = {name: amount for name, amount in limits.items() if _is_supported(name)}
    resources["requests"] = {**limited, **requested, **(resources.get("requests") or {})}


def resource_faults(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Faults of pod-level resources: their names, and what they say beside those of the containers."""
    resources = spec.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    if resources.get("claims") is not None:
        yield forbidden_value("spec.resources.claims", "claims may not be set for Resources at pod-level")
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if not _is_supported(name):
                yield unsupported(f"spec.resources.{field}[{name}]", name, _SUPPORTED)
            elif parse_milli(amount) < 0:
                yield invalid_value(f"spec.resources.{field}[{name}]", amount, "must be greater than or equal to 0")
    yield from _limit_faults(requests, limits)
    yield from _consistency_faults(spec, requests, limits)


def _limit_faults(requests: Mapping[str, Any], limits: Mapping[str, Any]) -> Iterator[FieldError]:
    for name, amount in requests.items():
        if name not in limits:
            if name.startswith(_HUGE_PAGES):
                yield required("spec.resources.limits", "Limit must be set for non overcommitable resources")
            continue
        asked, limit = parse_milli(amount), parse_milli(limits[name])
        if name.startswith(_HUGE_PAGES) and asked != limit:
            yield invalid_value("spec.resources.requests", amount, f"must be equal to {name} limit of {limits[name]}")
        elif asked > limit:
            words = f"must be less than or equal to {name} limit of {limits[name]}"
            yield invalid_value("spec.resources.requests", amount, words)


def _consistency_faults(
    spec: Mapping[str, Any], requests: Mapping[str, Any], limits: Mapping[str, Any]
) -> Iterator[FieldError]:
    if not requests and not limits:
        return
    containers = _without_own(spec)
    for name, needed in pod_requests(containers).items():
        if name in requests and needed > parse_milli(requests[name]):
            words = f"must be greater than or equal to aggregate container requests of {format_milli(needed)}"
            yield invalid_value(f"spec.resources.requests[{name}]", requests[name], words)
    for name, needed in pod_limits(containers).items():
        if name.startswith(_HUGE_PAGES) and name in limits and needed > parse_milli(limits[name]):
            words = f"must be greater than or equal to aggregate container limits of {format_milli(needed)}"
            yield invalid_value(f"spec.resources.limits[{name}]", limits[name], words)
    yield from _container_limit_faults(spec, limits)


def _container_limit_faults(spec: Mapping[str, Any], limits: Mapping[str, Any]) -> Iterator[FieldError]:
    for index, container in enumerate(spec.get("containers") or ()):
        for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and parse_milli(limit) > parse_milli(limits[name]):
                words = f"must be less than or equal to pod limits of {limits[name]}"
                yield invalid_value(f"spec.resources.containers[{index}][{name}].limits", limit, words)


def _without_own(spec: Mapping[str, Any]) -> PodSpec:
    """The spec as if only its containers had resources, and without overhead."""
    decoded = msgspec.convert(spec, PodSpec)
    return msgspec.structs.replace(decoded, resources=ResourceRequirements(), overhead={})


def _is_supported(name: str) -> bool:
    return name in _NATIVE or name.startswith(_HUGE_PAGES)
