"""Extracts the set of an object's fields: those that an apply owns, and those that an addition brings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarragon.localcluster.apply.managed_fields.field_set import LEAF_NODE, SELF, Fields
from tarragon.localcluster.apply.managed_fields.field_types import FREE, MAX_CACHED_SHAPES, FieldType
from tarragon.localcluster.apply.managed_fields.list_items import REPEATED, items_by_label

_MIN_CACHED_ITEMS = 4
"""Lists shorter than this are not cached: visiting every item is as fast."""
_TEXT = frozenset({str})


def kind_of(field_type: FieldType, value: Any) -> str:
    """The kind of a value. In a free type, a dict is a map, and anything else is one field."""
    if field_type.kind == "free":
        return "map" if isinstance(value, dict) else "leaf"
    return field_type.kind


def applied_fields(field_type: FieldType, value: Any) -> Fields:
    """The fields that an applied object owns: of declared structures only the content."""
    match kind_of(field_type, value):
        case "map" if isinstance(value, dict):
            return _fields_of(field_type, value)
        case "list" if isinstance(value, list):
            items = items_by_label(field_type, value)
            element = field_type.element or FREE
            return {
                item_label: LEAF_NODE if items[item_label] is REPEATED else _owned(element, items[item_label])
                for item_label in sorted(items)
            }
        case _:
            return {}


def _fields_of(field_type: FieldType, value: Mapping[str, Any]) -> Fields:
    found: Fields = {}
    for name in sorted(value):
        declared, child = field_type.fields.get(name), value[name]
        below = field_type.field_type(name)
        label = f"f:{name}"
        if declared is None or child is None or child == {}:
            found[label] = _owned(below, child)
        elif kind_of(below, child) == "leaf":
            found[label] = LEAF_NODE
        elif inside := applied_fields(below, child):
            found[label] = inside
    return found


def _owned(field_type: FieldType, value: Any) -> Fields:
    """The node of a field that is owned together with its content."""
    inside = applied_fields(field_type, value)
    return {SELF: LEAF_NODE, **inside} if inside else LEAF_NODE


def added_fields(field_type: FieldType, value: Any) -> Fields:
    """The node of a value that was added: all of it is new, including structures."""
    if not value or type(value) is str:
        return LEAF_NODE
    kind = kind_of(field_type, value)
    if kind == "leaf":
        return LEAF_NODE
    if kind == "map" and isinstance(value, dict):
        return _added_map(field_type, value)
    if kind == "list" and isinstance(value, list):
        return _added_list(field_type, value)
    return LEAF_NODE


def _added_list(field_type: FieldType, items: list[Any]) -> Fields:
    cache_key = _cache_key(field_type, items)
    if cache_key is None:
        return _added_items(field_type, items)
    found = field_type.lists.get(cache_key)
    if found is None:
        found = _added_items(field_type, items)
        if len(field_type.lists) < MAX_CACHED_SHAPES:
            field_type.lists[cache_key] = found
    return found


def _cache_key(field_type: FieldType, items: list[Any]) -> Any:
    """What determines the fields of these items: key values and field names, if all their fields are leaves."""
    if len(field_type.keys) != 1 or len(items) < _MIN_CACHED_ITEMS or field_type.element is None:
        return None
    key, cached = field_type.keys[0][0], field_type.element.shapes
    try:
        shapes = tuple([tuple(item) for item in items])
        marks = tuple([item[key] for item in items])
    except (TypeError, KeyError):
        return None  # not every item is an object with that key
    if not cached.keys() >= set(shapes) or set(map(type, marks)) != _TEXT:
        return None
    return marks, shapes


def _added_items(field_type: FieldType, items: list[Any]) -> Fields:
    element = field_type.element or FREE
    cached = element.shapes
    node: Fields = {SELF: LEAF_NODE}
    for item_label, item in items_by_label(field_type, items).items():
        shape = cached.get(tuple(item)) if type(item) is dict else None
        if shape is None:
            shape = LEAF_NODE if item is REPEATED else added_fields(element, item)
        node[item_label] = shape
    return dict(sorted(node.items()))


def _added_map(field_type: FieldType, value: Mapping[str, Any]) -> Fields:
    names = tuple(value)
    cached = field_type.shapes.get(names)
    if cached is not None:
        return cached
    if not field_type.fields and field_type.element is not None and field_type.element.kind == "leaf":
        return {SELF: LEAF_NODE, **{f"f:{name}": LEAF_NODE for name in sorted(names)}}
    node: Fields = {SELF: LEAF_NODE}
    is_flat = True
    for name in sorted(names):
        declared = field_type.fields.get(name)
        if declared is not None:
            label, below = declared
            is_flat = is_flat and below.kind == "leaf"
            node[label] = LEAF_NODE if below.kind == "leaf" else added_fields(below, value[name])
        else:
            is_flat = False
            node[f"f:{name}"] = added_fields(field_type.element or FREE, value[name])
    if is_flat and len(field_type.shapes) < MAX_CACHED_SHAPES:
        field_type.shapes[names] = node
    return node
