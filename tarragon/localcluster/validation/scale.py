"""Validation of the fields that a custom kind's `scale` points to, which a kube-apiserver does on every write.

Hence a status that has another type somewhere on the path cannot be written at all, in kube-apiserver as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.localcluster.kinds.resource import ScalePaths
from tarragon.localcluster.schema.field_errors import FieldError, invalid_value

_MAX_REPLICAS = 2**31 - 1
_GO_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}


def scale_faults(paths: ScalePaths, thing: Mapping[str, Any]) -> Iterator[FieldError]:
    """Faults of the replicas in spec and status, and of the selector."""
    for path in (paths.spec_replicas, paths.status_replicas):
        yield from _replica_faults(path, thing)
    if paths.label_selector:
        yield from _value_at(paths.label_selector, thing, str, "string", '""')[1]


def _replica_faults(path: tuple[str, ...], thing: Mapping[str, Any]) -> Iterator[FieldError]:
    value, faults = _value_at(path, thing, int, "int64", "0")
    yield from faults
    if isinstance(value, int) and value < 0:
        yield invalid_value(_field_path(path), value, "should be a non-negative integer")
    elif isinstance(value, int) and value > _MAX_REPLICAS:
        yield invalid_value(_field_path(path), value, f"should be less than or equal to {_MAX_REPLICAS}")


def _value_at(path: tuple[str, ...], thing: Any, kind: type, name: str, zero: str) -> tuple[Any, list[FieldError]]:
    """The value at a path, None if it is missing, and the fault that keeps it from being read."""
    for step in path:
        if type(thing) is not dict:
            return None, [_unreadable(path, thing, "map[string]interface{}", zero)]
        if step not in thing:
            return None, []
        thing = thing[step]
    if type(thing) is not kind:
        return None, [_unreadable(path, thing, name, zero)]
    return thing, []


def _unreadable(path: tuple[str, ...], value: Any, wanted: str, zero: str) -> FieldError:
    found = _GO_TYPES.get(type(value), "<nil>")
    field = _field_path(path)
    words = f"{field} accessor error: {_go_text(value)} is of the type {found}, expected {wanted}"
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {zero}: {words}")


def _field_path(path: tuple[str, ...]) -> str:
    return "." + ".".join(path)


def _go_text(value: Any) -> str:
    """The value as Go's %v prints it."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case float() if value == int(value):
            return str(int(value))
        case list():
            return f"[{' '.join(map(_go_text, value))}]"
        case dict():
            return f"map[{' '.join(f'{name}:{_go_text(value[name])}' for name in sorted(value))}]"
        case _:
            return str(value)
