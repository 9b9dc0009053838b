"""Merges an applied object into a live one, and removes fields from an object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tarragon.localcluster.apply.managed_fields.extract import kind_of
from tarragon.localcluster.apply.managed_fields.field_set import SELF, Fields, is_member
from tarragon.localcluster.apply.managed_fields.field_types import FREE, FieldType
from tarragon.localcluster.apply.managed_fields.list_items import REPEATED, KeylessError, items_by_label, label


def merge(field_type: FieldType, live: Any, applied: Any) -> Any:
    """The live value with the applied one merged in. Neither is changed, and the result shares their parts."""
    match kind_of(field_type, applied):
        case "map" if isinstance(live, dict) and isinstance(applied, dict):
            result = dict(live)
            for name, value in applied.items():
                result[name] = merge(field_type.field_type(name), live[name], value) if name in live else value
            return result
        case "list" if isinstance(live, list) and isinstance(applied, list):
            return _merged_list(field_type, live, applied)
        case _:
            return applied


def remove_fields(field_type: FieldType, value: Any, fields: Fields) -> Any:
    """The value without these fields, None if nothing is left."""
    match kind_of(field_type, value):
        case "map" if isinstance(value, dict):
            return _without_fields(field_type, value, fields)
        case "list" if isinstance(value, list):
            return _without_items(field_type, value, fields)
        case _:
            return value


def with_parents(field_type: FieldType, fields: Fields) -> Fields:
    """The set with the declared structures above its fields, so that a structure is removed with its last field."""
    result: Fields = {}
    for step, node in fields.items():
        name = step.removeprefix("f:")
        if step == SELF or not node:
            result[step] = node
        elif step != name:
            inside = with_parents(field_type.field_type(name), node)
            is_declared = field_type.kind == "map" and name in field_type.fields
            result[step] = {SELF: {}, **inside} if is_declared and SELF not in inside else inside
        else:
            result[step] = with_parents(field_type.element or FREE, node)
    return result


def _merged_list(field_type: FieldType, live: list[Any], applied: list[Any]) -> list[Any]:
    old, new = items_by_label(field_type, live), items_by_label(field_type, applied)
    element = field_type.element or FREE
    result: list[Any] = []
    for item_label in _in_order([_label_of(field_type, item) for item in live], list(new)):
        if item_label not in new:
            result += [item for item in live if _label_of(field_type, item) == item_label]
        elif item_label in old and old[item_label] is not REPEATED:
            result.append(merge(element, old[item_label], new[item_label]))
        else:
            result.append(new[item_label])
    return result


def _in_order(live: Sequence[str], applied: Sequence[str]) -> Iterator[str]:
    """The order of the applied list. Items of the live list only stay before the item that they preceded."""
    wanted, emitted = set(applied), set()
    shared = (item_label for item_label in applied if item_label in set(live))
    following = next(shared, None)
    index = 0
    for item_label in applied:
        while index < len(live) and live[index] != following:
            if live[index] not in wanted and live[index] not in emitted:
                emitted.add(live[index])
                yield live[index]
            index += 1
        yield item_label
        if item_label == following:
            following = next(shared, None)
    for item_label in live[index:]:
        if item_label not in wanted and item_label not in emitted:
            emitted.add(item_label)
            yield item_label


def _label_of(field_type: FieldType, item: Any) -> str:
    try:
        return label(field_type, item)
    except KeylessError:
        return ""


def _without_fields(field_type: FieldType, value: dict[str, Any], fields: Fields) -> dict[str, Any] | None:
    result: dict[str, Any] = {}
    for name, child in value.items():
        node = fields.get(f"f:{name}")
        if node is None:
            result[name] = child
        elif not is_member(node):
            rest = remove_fields(field_type.field_type(name), child, node)
            if rest is not None:
                result[name] = rest
    return result or None


def _without_items(field_type: FieldType, value: list[Any], fields: Fields) -> list[Any] | None:
    result: list[Any] = []
    for item in value:
        node = fields.get(_label_of(field_type, item))
        if node is None:
            result.append(item)
        elif not is_member(node):
            result.append(remove_fields(field_type.element or FREE, item, node))
    return result or None
