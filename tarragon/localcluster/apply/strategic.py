"""Strategic merge patches: maps are merged, and so are lists whose type declares a merge key or a set.

Directives: `$patch: replace|delete|merge`, `$retainKeys`, `$deleteFromPrimitiveList/FIELD`, `$setElementOrder/FIELD`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tarragon.localcluster.kinds.go_types import ANYTHING, GoType

Json = dict[str, Any]

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_DELETE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


class StrategicError(Exception):
    """The patch does not fit the object. The message is a kube-apiserver's."""


def strategic_merge(shape: GoType, target: Any, patch: Mapping[str, Any]) -> Json:
    """The object after the patch. Neither argument is changed; what the patch does not touch is shared."""
    if patch.get(_PATCH) == "replace":
        return _without_directives(patch)
    if patch.get(_PATCH) == "delete":
        return {}
    base = _retained(dict(target) if isinstance(target, Mapping) else {}, patch)
    before = dict(base)
    for name, change in patch.items():
        _delete_from_list(base, name, change)
    for name, change in patch.items():
        if not name.startswith("$"):
            _merge_field(shape.child(name), base, name, change)
    _set_order(shape, base, before, patch)
    return base


def _retained(base: Json, patch: Mapping[str, Any]) -> Json:
    """Drop the fields that `$retainKeys` does not list, so that one member of a union can replace another."""
    kept = patch.get(_RETAIN)
    if kept is None:
        return base
    if not isinstance(kept, list):
        raise StrategicError(f"invalid value for {_RETAIN}: must be a list")
    return {name: value for name, value in base.items() if name in kept}


def _set_order(shape: GoType, base: Json, before: Json, patch: Mapping[str, Any]) -> None:
    """Sort merged lists as `$setElementOrder` says, or else as in the patch.

    This is the order of kube-apiserver 1.20, except for patches that also delete: there, the server's order depends
    on a shared slice.
    """
    for name, order in patch.items():
        field = name.removeprefix(_ORDER)
        if name.startswith("$") and field == name:
            continue
        if field == name and f"{_ORDER}{name}" in patch:
            continue
        below = shape.child(field)
        if "merge" in below.strategies and isinstance(base.get(field), list) and isinstance(order, list):
            base[field] = _ordered(below.merge_key, base[field], before.get(field) or [], order)


def _merge_field(shape: GoType, base: Json, name: str, change: Any) -> None:
    if change is None:
        base.pop(name, None)
    elif isinstance(change, Mapping):
        if isinstance(base.get(name), list):
            raise StrategicError("cannot restore slice from map")
        if "replace" in shape.strategies:
            base[name] = _plain(change)
        elif change.get(_PATCH) == "delete":
            base.pop(name, None)
        else:
            base[name] = strategic_merge(shape, base.get(name), change)
    elif isinstance(change, list):
        base[name] = _merged_list(shape, base.get(name), change)
    else:
        base[name] = change


def _merged_list(shape: GoType, old: Any, change: Sequence[Any]) -> list[Any]:
    before = list(old) if isinstance(old, list) else []
    is_replaced = any(isinstance(one, Mapping) and one.get(_PATCH) == "replace" for one in change)
    if is_replaced or "merge" not in shape.strategies:
        directives = [one for one in change if isinstance(one, Mapping) and one.get(_PATCH) in ("delete", "replace")]
        return [_plain(one) for one in change if one not in directives]
    if not shape.merge_key:
        return before + [one for one in change if one not in before]
    return _merged_by_key(shape, before, change)


def _merged_by_key(shape: GoType, before: list[Any], change: Sequence[Any]) -> list[Any]:
    element = shape.element or ANYTHING
    for one in change:
        if not isinstance(one, Mapping) or shape.merge_key not in one:
            raise StrategicError(f"map: {one} does not contain declared merge key: {shape.merge_key}")
        index = _index_of(before, shape.merge_key, one[shape.merge_key])
        match one.get(_PATCH):
            case "delete" if index is not None:
                before.pop(index)
            case "delete":
                pass
            case _ if index is not None:
                before[index] = strategic_merge(element, before[index], one)
            case _:
                before.append(_plain(one))
    return before


def _index_of(elements: Sequence[Any], key: str, value: Any) -> int | None:
    found = (index for index, one in enumerate(elements) if isinstance(one, Mapping) and one.get(key) == value)
    return next(found, None)


def _delete_from_list(base: Json, name: str, values: Any) -> None:
    """Called before the merge, so that a value that the patch deletes and adds again remains."""
    field = name.removeprefix(_DELETE)
    if field != name and isinstance(base.get(field), list) and isinstance(values, list):
        base[field] = [one for one in base[field] if one not in values]


def _ordered(key: str, elements: list[Any], before: list[Any], order: list[Any]) -> list[Any]:
    """Elements in the given order. Others stay before the elements that they preceded, or come last."""

    def identity(element: Any) -> str:
        return repr(element.get(key) if key and isinstance(element, Mapping) else element)

    ranks = {identity(one): rank for rank, one in enumerate(order)}
    earlier = {identity(one): rank for rank, one in enumerate(before)}
    named = sorted((one for one in elements if identity(one) in ranks), key=lambda one: ranks[identity(one)])
    rest = [one for one in elements if identity(one) not in ranks]
    result: list[Any] = []
    for element in named:
        position = earlier.get(identity(element))
        while position is not None and rest and earlier.get(identity(rest[0]), position) < position:
            result.append(rest.pop(0))
        result.append(element)
    return result + rest


def _plain(value: Any) -> Any:
    """A new value without directives."""
    if isinstance(value, Mapping):
        return _without_directives(value)
    if isinstance(value, list):
        return [_plain(one) for one in value if not (isinstance(one, Mapping) and one.get(_PATCH) == "delete")]
    return value


def _without_directives(value: Mapping[str, Any]) -> Json:
    return {name: _plain(child) for name, child in value.items() if not name.startswith("$") and child is not None}
