"""Validation of a container's requests and limits, including extended resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.base.quantity import parse_milli
from tarragon.kube import name_validation
from tarragon.localcluster.schema.field_errors import FieldError, invalid_value, required

_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})
_MILLI = 1000


def faults(path: str, resources: Mapping[str, Any]) -> Iterator[FieldError]:
    limits: Mapping[str, Any] = resources.get("limits") or {}
    requests: Mapping[str, Any] = resources.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _name_faults(f"{path}.{field}[{name}]", name)
            yield from _amount_faults(f"{path}.{field}[{name}]", name, amount)
    for name, amount in requests.items():
        if name in limits and _is_overcommittable(name) and parse_milli(amount) > parse_milli(limits[name]):
            yield invalid_value(f"{path}.requests", amount, f"must be less than or equal to {name} limit")
        elif name in limits and not _is_overcommittable(name) and parse_milli(amount) != parse_milli(limits[name]):
            yield invalid_value(f"{path}.requests", amount, f"must be equal to {name} limit")
        elif name not in limits and not _is_overcommittable(name):
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")


def _is_overcommittable(name: str) -> bool:
    """Whether requests may be lower than limits. Devices and huge pages cannot be overcommitted."""
    return name in _NATIVE


def _name_faults(path: str, name: str) -> Iterator[FieldError]:
    if words := name_validation.qualified(name):
        yield invalid_value(path, name, words)
    elif "/" not in name and name not in _NATIVE and not name.startswith("hugepages-"):
        yield invalid_value(path, name, "must be a standard resource type or fully qualified")
        yield invalid_value(path, name, "must be a standard resource for containers")


def _amount_faults(path: str, name: str, amount: Any) -> Iterator[FieldError]:
    if parse_milli(amount) < 0:
        yield invalid_value(path, amount, "must be greater than or equal to 0")
    if "/" in name and parse_milli(amount) % _MILLI:
        yield invalid_value(path, amount, "must be an integer")
