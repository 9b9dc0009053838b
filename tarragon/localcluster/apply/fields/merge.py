"""Merges an applied object into a live one, and removes fields from an object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tarragon.localcluster.apply.fields.extract import kind_of
from tarragon.localcluster.apply.fields.items import SEVERAL, KeylessError, label, labelled
from tarragon.localcluster.apply.fields.sets import SELF, Fields, has
from tarragon.localcluster.apply.fields.types import FREE, Type


def merged(place: Type, live: Any, applied: Any) -> Any:
    """The live value with the applied one merged in. Neither is changed, and the result shares their parts."""
    match kind_of(place, applied):
        case "map" if isinstance(live, dict) and isinstance(applied, dict):
            result = dict(live)
            for name, value in applied.items():
                result[name] = merged(place.below(name), live[name], value) if name in live else value
            return result
        case "list" if isinstance(live, list) and isinstance(applied, list):
            return _merged_list(place, live, applied)
        case _:
            return applied


def removed(place: Type, value: Any, fields: Fields) -> Any:
    """The value without these fields, None if nothing is left."""
    match kind_of(place, value):
        case "map" if isinstance(value, dict):
            return _without_fields(place, value, fields)
        case "list" if isinstance(value, list):
            return _without_items(place, value, fields)
        case _:
            return value


def named(place: Type, fields: Fields) -> Fields:
    """The set with the declared structures above its fields, so that a structure is removed with its last field."""
    result: Fields = {}
    for step, node in fields.items():
        name = step.removeprefix("f:")
        if step == SELF or not node:
            result[step] = node
        elif step != name:
            inside = named(place.below(name), node)
            is_declared = place.kind == "map" and name in place.fields
            result[step] = {SELF: {}, **inside} if is_declared and SELF not in inside else inside
        else:
            result[step] = named(place.element or FREE, node)
    return result


def _merged_list(place: Type, live: list[Any], applied: list[Any]) -> list[Any]:
    old, new = labelled(place, live), labelled(place, applied)
    element = place.element or FREE
    result: list[Any] = []
    for mark in _in_order([_mark(place, item) for item in live], list(new)):
        if mark not in new:
            result += [item for item in live if _mark(place, item) == mark]
        elif mark in old and old[mark] is not SEVERAL:
            result.append(merged(element, old[mark], new[mark]))
        else:
            result.append(new[mark])
    return result


def _in_order(live: Sequence[str], applied: Sequence[str]) -> Iterator[str]:
    """The order of the applied list. Items of the live list only stay before the item that they preceded."""
    wanted, emitted = set(applied), set()
    shared = (mark for mark in applied if mark in set(live))
    following = next(shared, None)
    index = 0
    for mark in applied:
        while index < len(live) and live[index] != following:
            if live[index] not in wanted and live[index] not in emitted:
                emitted.add(live[index])
                yield live[index]
            index += 1
        yield mark
        if mark == following:
            following = next(shared, None)
    for mark in live[index:]:
        if mark not in wanted and mark not in emitted:
            emitted.add(mark)
            yield mark


def _mark(place: Type, item: Any) -> str:
    try:
        return label(place, item)
    except KeylessError:
        return ""


def _without_fields(place: Type, value: dict[str, Any], fields: Fields) -> dict[str, Any] | None:
    result: dict[str, Any] = {}
    for name, child in value.items():
        node = fields.get(f"f:{name}")
        if node is None:
            result[name] = child
        elif not has(node):
            rest = removed(place.below(name), child, node)
            if rest is not None:
                result[name] = rest
    return result or None


def _without_items(place: Type, value: list[Any], fields: Fields) -> list[Any] | None:
    result: list[Any] = []
    for item in value:
        node = fields.get(_mark(place, item))
        if node is None:
            result.append(item)
        elif not has(node):
            result.append(removed(place.element or FREE, item, node))
    return result or None
