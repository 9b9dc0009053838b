"""Extracts the set of an object's fields: those that an apply owns, and those that an addition brings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarragon.localcluster.apply.fields.items import SEVERAL, labelled
from tarragon.localcluster.apply.fields.sets import MEMBER, SELF, Fields
from tarragon.localcluster.apply.fields.types import FREE, MOST_SHAPES, Type

_MIN_CACHED_ITEMS = 4
"""Lists shorter than this are not cached: visiting every item is as fast."""
_TEXT = frozenset({str})


def kind_of(place: Type, value: Any) -> str:
    """The kind of a value. In a free type, a dict is a map, and anything else is one field."""
    if place.kind == "free":
        return "map" if isinstance(value, dict) else "leaf"
    return place.kind


def extracted(place: Type, value: Any) -> Fields:
    """The fields that an applied object owns: of declared structures only the content."""
    match kind_of(place, value):
        case "map" if isinstance(value, dict):
            return _fields_of(place, value)
        case "list" if isinstance(value, list):
            items = labelled(place, value)
            element = place.element or FREE
            return {mark: MEMBER if items[mark] is SEVERAL else _owned(element, items[mark]) for mark in sorted(items)}
        case _:
            return {}


def _fields_of(place: Type, value: Mapping[str, Any]) -> Fields:
    found: Fields = {}
    for name in sorted(value):
        declared, child = place.fields.get(name), value[name]
        below = place.below(name)
        label = f"f:{name}"
        if declared is None or child is None or child == {}:
            found[label] = _owned(below, child)
        elif kind_of(below, child) == "leaf":
            found[label] = MEMBER
        elif inside := extracted(below, child):
            found[label] = inside
    return found


def _owned(place: Type, value: Any) -> Fields:
    """The node of a field that is owned together with its content."""
    inside = extracted(place, value)
    return {SELF: MEMBER, **inside} if inside else MEMBER


def added(place: Type, value: Any) -> Fields:
    """The node of a value that was added: all of it is new, including structures."""
    if not value or type(value) is str:
        return MEMBER
    kind = kind_of(place, value)
    if kind == "leaf":
        return MEMBER
    if kind == "map" and isinstance(value, dict):
        return _added_map(place, value)
    if kind == "list" and isinstance(value, list):
        return _added_list(place, value)
    return MEMBER


def _added_list(place: Type, items: list[Any]) -> Fields:
    cache_key = _cache_key(place, items)
    if cache_key is None:
        return _added_items(place, items)
    found = place.lists.get(cache_key)
    if found is None:
        found = _added_items(place, items)
        if len(place.lists) < MOST_SHAPES:
            place.lists[cache_key] = found
    return found


def _cache_key(place: Type, items: list[Any]) -> Any:
    """What determines the fields of these items: key values and field names, if all their fields are leaves."""
    if len(place.keys) != 1 or len(items) < _MIN_CACHED_ITEMS or place.element is None:
        return None
    key, cached = place.keys[0][0], place.element.shapes
    try:
        shapes = tuple([tuple(item) for item in items])
        marks = tuple([item[key] for item in items])
    except (TypeError, KeyError):
        return None  # not every item is an object with that key
    if not cached.keys() >= set(shapes) or set(map(type, marks)) != _TEXT:
        return None
    return marks, shapes


def _added_items(place: Type, items: list[Any]) -> Fields:
    element = place.element or FREE
    cached = element.shapes
    node: Fields = {SELF: MEMBER}
    for mark, item in labelled(place, items).items():
        shape = cached.get(tuple(item)) if type(item) is dict else None
        if shape is None:
            shape = MEMBER if item is SEVERAL else added(element, item)
        node[mark] = shape
    return dict(sorted(node.items()))


def _added_map(place: Type, value: Mapping[str, Any]) -> Fields:
    names = tuple(value)
    cached = place.shapes.get(names)
    if cached is not None:
        return cached
    if not place.fields and place.element is not None and place.element.kind == "leaf":
        return {SELF: MEMBER, **{f"f:{name}": MEMBER for name in sorted(names)}}
    node: Fields = {SELF: MEMBER}
    is_flat = True
    for name in sorted(names):
        declared = place.fields.get(name)
        if declared is not None:
            label, below = declared
            is_flat = is_flat and below.kind == "leaf"
            node[label] = MEMBER if below.kind == "leaf" else added(below, value[name])
        else:
            is_flat = False
            node[f"f:{name}"] = added(place.element or FREE, value[name])
    if is_flat and len(place.shapes) < MOST_SHAPES:
        place.shapes[names] = node
    return node
