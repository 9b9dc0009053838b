"""What a kube-apiserver demands of the fields that a custom kind's `scale` points to, on every write of the object.

So a status whose shape does not have the path cannot be written at all. That is seldom wanted, but it is so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.localcluster.kinds.resource import ScalePaths
from tarragon.localcluster.schema.field_errors import Fault, invalid_value

_LARGEST = 2**31 - 1
_GO_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}


def scale_faults(paths: ScalePaths, thing: Mapping[str, Any]) -> Iterator[Fault]:
    """Of the replicas that are wanted and that run, and of the selector."""
    for path in (paths.spec_replicas, paths.status_replicas):
        yield from _replica_faults(path, thing)
    if paths.label_selector:
        yield from _found(paths.label_selector, thing, str, "string", '""')[1]


def _replica_faults(path: tuple[str, ...], thing: Mapping[str, Any]) -> Iterator[Fault]:
    value, faults = _found(path, thing, int, "int64", "0")
    yield from faults
    if isinstance(value, int) and value < 0:
        yield invalid_value(_written(path), value, "should be a non-negative integer")
    elif isinstance(value, int) and value > _LARGEST:
        yield invalid_value(_written(path), value, f"should be less than or equal to {_LARGEST}")


def _found(path: tuple[str, ...], thing: Any, kind: type, name: str, zero: str) -> tuple[Any, list[Fault]]:
    """The value at a path, None where there is none, and what keeps it from being read."""
    for step in path:
        if type(thing) is not dict:
            return None, [_unreadable(path, thing, "map[string]interface{}", zero)]
        if step not in thing:
            return None, []
        thing = thing[step]
    if type(thing) is not kind:
        return None, [_unreadable(path, thing, name, zero)]
    return thing, []


def _unreadable(path: tuple[str, ...], value: Any, wanted: str, zero: str) -> Fault:
    found = _GO_TYPES.get(type(value), "<nil>")
    place = _written(path)
    words = f"{place} accessor error: {_go_text(value)} is of the type {found}, expected {wanted}"
    return Fault(place, "FieldValueInvalid", f"Invalid value: {zero}: {words}")


def _written(path: tuple[str, ...]) -> str:
    return "." + ".".join(path)


def _go_text(value: Any) -> str:
    """As Go's %v prints it."""
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
