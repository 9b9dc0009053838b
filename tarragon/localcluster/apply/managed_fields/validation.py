"""Checks an applied object against its type: wrong types, unknown fields, and list items without their keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.localcluster.apply.managed_fields.field_set import Path
from tarragon.localcluster.apply.managed_fields.field_types import FREE, FieldType
from tarragon.localcluster.apply.managed_fields.list_items import KeylessError, label
from tarragon.localcluster.apply.managed_fields.path_elements import path_text

_SCALARS: Mapping[str, tuple[type, ...]] = {"string": (str,), "number": (int, float), "boolean": (bool,)}
_GO_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "bool",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}


def type_faults(field_type: FieldType, value: Any, path: Path = ()) -> Iterator[str]:
    """Yields the faults of an applied object, in a kube-apiserver's words."""
    if value is None:
        return
    match field_type.kind:
        case "map" if isinstance(value, dict):
            yield from _map_misfits(field_type, value, path)
        case "list" if isinstance(value, list):
            yield from _list_misfits(field_type, value, path)
        case "map" | "list":
            yield f"{path_text(path)}: expected {field_type.kind}, got &{{{_go_text(value)}}}"
        case _ if field_type.scalar and not _is_scalar(field_type.scalar, value):
            yield f"{path_text(path)}: {_expected(field_type.scalar, value)}"
        case _:
            pass


def _is_scalar(scalar: str, value: Any) -> bool:
    """Python counts booleans as numbers, so tell them apart."""
    return isinstance(value, _SCALARS[scalar]) and isinstance(value, bool) == (scalar == "boolean")


def _expected(scalar: str, value: Any) -> str:
    match scalar:
        case "string":
            return f"expected string, got &value.valueUnstructured{{Value:{_typed(value)}}}"
        case "number":
            return f"expected numeric (int or float), got {_GO_TYPES.get(type(value), 'interface {}')}"
        case _:
            return f"expected boolean, got &{{{_go_text(value)}}}"


def _go_text(value: Any) -> str:
    """The value as Go prints it."""
    match value:
        case dict():
            return f"map[{' '.join(f'{name}:{_go_text(value[name])}' for name in sorted(value))}]"
        case list():
            return f"[{' '.join(map(_go_text, value))}]"
        case bool():
            return "true" if value else "false"
        case None:
            return "<nil>"
        case _:
            return str(value)


def _typed(value: Any) -> str:
    """The value as Go prints it with its type."""
    match value:
        case dict():
            return f"map[string]interface {{}}{{{', '.join(f'{_typed(k)}:{_typed(value[k])}' for k in sorted(value))}}}"
        case list():
            return f"[]interface {{}}{{{', '.join(map(_typed, value))}}}"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case None:
            return "interface {}(nil)"
        case _:
            return _go_text(value)


def _map_misfits(field_type: FieldType, value: Mapping[str, Any], path: Path) -> Iterator[str]:
    for name, child in value.items():
        child_path = (*path, f"f:{name}")
        if name not in field_type.fields and field_type.element is None:
            yield f"{path_text(child_path)}: field not declared in schema"
        else:
            yield from type_faults(field_type.field_type(name), child, child_path)


def _list_misfits(field_type: FieldType, value: list[Any], path: Path) -> Iterator[str]:
    seen: set[str] = set()
    for index, item in enumerate(value):
        try:
            item_label = label(field_type, item)
        except KeylessError as error:
            yield f"{path_text(path)}: element {index}: {error}"
            return
        if item_label in seen:
            yield f"{path_text(path)}: duplicate entries for key {path_text((item_label,))}"
        seen.add(item_label)
        yield from type_faults(field_type.element or FREE, item, (*path, item_label))
