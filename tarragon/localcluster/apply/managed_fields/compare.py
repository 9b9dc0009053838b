"""Compares two objects field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tarragon.localcluster.apply.managed_fields.extract import added_fields
from tarragon.localcluster.apply.managed_fields.field_set import LEAF_NODE, SELF, Fields, union, without_subtrees
from tarragon.localcluster.apply.managed_fields.field_types import FREE, FieldType
from tarragon.localcluster.apply.managed_fields.list_items import REPEATED, items_by_label

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The fields that were added, removed and modified."""

    added: Fields
    removed: Fields
    modified: Fields

    @property
    def written(self) -> Fields:
        return union(self.added, self.modified)

    def without(self, tops: Fields) -> Comparison:
        if not tops:
            return self
        return Comparison(
            without_subtrees(self.added, tops),
            without_subtrees(self.removed, tops),
            without_subtrees(self.modified, tops),
        )


NOTHING = Comparison({}, {}, {})


def compare(field_type: FieldType, old: Mapping[str, Any], new: Mapping[str, Any]) -> Comparison:
    """Compare two objects of a kind. Equal parts are not visited."""
    found = _Difference()
    found.compare_maps(field_type, old, new)
    return Comparison(found.added, found.removed, found.modified)


class _Difference:
    """Collects the differences below one path."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self) -> None:
        self.added: Fields = {}
        self.removed: Fields = {}
        self.modified: Fields = {}

    def compare_maps(self, field_type: FieldType, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        declared, others = field_type.fields, field_type.element or FREE
        for name in sorted(old.keys() | new.keys()):
            label, below = declared.get(name) or (f"f:{name}", others)
            if name not in old:
                self.added[label] = LEAF_NODE if below.kind == "leaf" else added_fields(below, new[name])
            elif name not in new:
                self.removed[label] = LEAF_NODE if below.kind == "leaf" else added_fields(below, old[name])
            elif not _are_same(old[name], new[name]):
                self._add_changed(label, below, old[name], new[name])

    def _compare_lists(self, field_type: FieldType, old: list[Any], new: list[Any]) -> None:
        if not old:
            self.added = _children(added_fields(field_type, new))
            return
        before, after = items_by_label(field_type, old), items_by_label(field_type, new)
        element = field_type.element or FREE
        for item_label in sorted({*before, *after}):
            earlier, later = before.get(item_label, _ABSENT), after.get(item_label, _ABSENT)
            if REPEATED in (earlier, later):
                self._compare_repeated(item_label, element, earlier, later)
                if earlier is later and _all_of(field_type, old, item_label) != _all_of(field_type, new, item_label):
                    self.modified[item_label] = LEAF_NODE
            elif earlier is _ABSENT:
                self.added[item_label] = added_fields(element, later)
            elif later is _ABSENT:
                self.removed[item_label] = added_fields(element, earlier)
            elif not _are_same(earlier, later):
                self._add_changed(item_label, element, earlier, later)

    def _compare_repeated(self, item_label: str, element: FieldType, earlier: Any, later: Any) -> None:
        """An item that occurs more than once is one field, and what is below it has no owner."""
        if earlier is REPEATED and later is not REPEATED:
            self.removed[item_label] = LEAF_NODE
            if later is not _ABSENT:
                self.added[item_label] = added_fields(element, later)
        elif later is REPEATED and earlier is not REPEATED:
            self.added[item_label] = LEAF_NODE
            if earlier is not _ABSENT:
                self.removed[item_label] = added_fields(element, earlier)

    def _add_changed(self, label: str, field_type: FieldType, before: Any, after: Any) -> None:
        kind = field_type.kind
        if kind == "leaf" or (not before and not after) or not (_has_parts(before) or _has_parts(after)):
            self.modified[label] = LEAF_NODE
            return
        below = _Difference()
        if kind != "list" and _are_both(dict, before, after):
            below.compare_maps(field_type, before or {}, after or {})
        elif kind == "list" and _are_both(list, before, after):
            below._compare_lists(field_type, before or [], after or [])
        elif kind == "free" and _are_both(list, before, after):
            self.modified[label] = LEAF_NODE
        else:
            self.modified[label] = LEAF_NODE
            below._compare_replaced(field_type, before, after)
        self._add_below(label, below)

    def _compare_replaced(self, field_type: FieldType, before: Any, after: Any) -> None:
        """A value of another type: all that was below the old one is removed, and all below the new one is added."""
        self.removed = _children(added_fields(field_type, before))
        self.added = _children(added_fields(field_type, after))

    def _add_below(self, label: str, below: _Difference) -> None:
        if below.added:
            self.added[label] = below.added
        if below.removed:
            self.removed[label] = below.removed
        if below.modified:
            self.modified[label] = below.modified


def _are_same(before: Any, after: Any) -> bool:
    """Equality that does not take 1 for true."""
    return before is after or (before == after and isinstance(before, bool) == isinstance(after, bool))


def _has_parts(value: Any) -> bool:
    return type(value) is dict or type(value) is list


def _are_both(kind: type, before: Any, after: Any) -> bool:
    """Whether both values are of the type; None counts as empty."""
    return (before is None or type(before) is kind) and (after is None or type(after) is kind)


def _children(node: Fields) -> Fields:
    return {label: child for label, child in node.items() if label != SELF}


def _all_of(field_type: FieldType, items: list[Any], item_label: str) -> list[Any]:
    return [item for item in items if item_label in items_by_label(field_type, [item])]
