"""The set of all fields that an object has: as an applied one owns them, and as an addition brings them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarragon.localcluster.apply.fields.items import SEVERAL, labelled
from tarragon.localcluster.apply.fields.sets import MEMBER, SELF, Fields
from tarragon.localcluster.apply.fields.types import FREE, MOST_SHAPES, Type

_FEW = 4
"""Items for which it is as quick to look at each."""
_TEXT = frozenset({str})


def kind_of(place: Type, value: Any) -> str:
    """A free place is what its value is: maps are open, all else is one field."""
    if place.kind == "free":
        return "map" if isinstance(value, dict) else "leaf"
    return place.kind


def extracted(place: Type, value: Any) -> Fields:
    """The fields of an object that is applied: declared structures are not owned, only what is in them."""
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
    """The node of a place that is itself owned."""
    inside = extracted(place, value)
    return {SELF: MEMBER, **inside} if inside else MEMBER


def added(place: Type, value: Any) -> Fields:
    """The node of a place that was not there: all of it is new, structures too."""
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
    mark = _mark_of_flat(place, items)
    if mark is None:
        return _added_items(place, items)
    found = place.lists.get(mark)
    if found is None:
        found = _added_items(place, items)
        if len(place.lists) < MOST_SHAPES:
            place.lists[mark] = found
    return found


def _mark_of_flat(place: Type, items: list[Any]) -> Any:
    """What alone says which fields these items have: their keys, and which fields each has, all of them leaves."""
    if len(place.keys) != 1 or len(items) < _FEW or place.element is None:
        return None
    key, known = place.keys[0][0], place.element.shapes
    try:
        shapes = tuple([tuple(item) for item in items])
        marks = tuple([item[key] for item in items])
    except (TypeError, KeyError):
        return None  # not all of them are objects with that key
    if not known.keys() >= set(shapes) or set(map(type, marks)) != _TEXT:
        return None
    return marks, shapes


def _added_items(place: Type, items: list[Any]) -> Fields:
    element = place.element or FREE
    known = element.shapes
    node: Fields = {SELF: MEMBER}
    for mark, item in labelled(place, items).items():
        shape = known.get(tuple(item)) if type(item) is dict else None
        if shape is None:
            shape = MEMBER if item is SEVERAL else added(element, item)
        node[mark] = shape
    return dict(sorted(node.items()))


def _added_map(place: Type, value: Mapping[str, Any]) -> Fields:
    names = tuple(value)
    known = place.shapes.get(names)
    if known is not None:
        return known
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
