"""What of an object has changed, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tarragon.localcluster.apply.fields.extract import added
from tarragon.localcluster.apply.fields.items import SEVERAL, labelled
from tarragon.localcluster.apply.fields.sets import MEMBER, SELF, Fields, union, without
from tarragon.localcluster.apply.fields.types import FREE, Type

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The fields that are new, gone, and other than before."""

    added: Fields
    removed: Fields
    modified: Fields

    @property
    def written(self) -> Fields:
        return union(self.added, self.modified)

    def without(self, tops: Fields) -> Comparison:
        if not tops:
            return self
        return Comparison(without(self.added, tops), without(self.removed, tops), without(self.modified, tops))


NOTHING = Comparison({}, {}, {})


def compared(place: Type, old: Mapping[str, Any], new: Mapping[str, Any]) -> Comparison:
    """Of two objects of a kind. What is equal is not looked into."""
    found = _Difference()
    found.maps(place, old, new)
    return Comparison(found.added, found.removed, found.modified)


class _Difference:
    """What has been found below one place."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self) -> None:
        self.added: Fields = {}
        self.removed: Fields = {}
        self.modified: Fields = {}

    def maps(self, place: Type, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        declared, others = place.fields, place.element or FREE
        for name in sorted(old.keys() | new.keys()):
            label, below = declared.get(name) or (f"f:{name}", others)
            if name not in old:
                self.added[label] = MEMBER if below.kind == "leaf" else added(below, new[name])
            elif name not in new:
                self.removed[label] = MEMBER if below.kind == "leaf" else added(below, old[name])
            elif not _are_same(old[name], new[name]):
                self._changed(label, below, old[name], new[name])

    def _lists(self, place: Type, old: list[Any], new: list[Any]) -> None:
        if not old:
            self.added = _inside(added(place, new))
            return
        before, after = labelled(place, old), labelled(place, new)
        element = place.element or FREE
        for mark in sorted({*before, *after}):
            earlier, later = before.get(mark, _ABSENT), after.get(mark, _ABSENT)
            if SEVERAL in (earlier, later):
                self._repeated(mark, element, earlier, later)
                if earlier is later and _all_of(place, old, mark) != _all_of(place, new, mark):
                    self.modified[mark] = MEMBER
            elif earlier is _ABSENT:
                self.added[mark] = added(element, later)
            elif later is _ABSENT:
                self.removed[mark] = added(element, earlier)
            elif not _are_same(earlier, later):
                self._changed(mark, element, earlier, later)

    def _repeated(self, mark: str, element: Type, earlier: Any, later: Any) -> None:
        """An item that is in a list twice is one field; what is below it is nobody's."""
        if earlier is SEVERAL and later is not SEVERAL:
            self.removed[mark] = MEMBER
            if later is not _ABSENT:
                self.added[mark] = added(element, later)
        elif later is SEVERAL and earlier is not SEVERAL:
            self.added[mark] = MEMBER
            if earlier is not _ABSENT:
                self.removed[mark] = added(element, earlier)

    def _changed(self, label: str, place: Type, before: Any, after: Any) -> None:
        kind = place.kind
        if kind == "leaf" or (not before and not after) or not (_has_parts(before) or _has_parts(after)):
            self.modified[label] = MEMBER
            return
        below = _Difference()
        if kind != "list" and _are(dict, before, after):
            below.maps(place, before or {}, after or {})
        elif kind == "list" and _are(list, before, after):
            below._lists(place, before or [], after or [])
        elif kind == "free" and _are(list, before, after):
            self.modified[label] = MEMBER
        else:
            self.modified[label] = MEMBER
            below._replaced(place, before, after)
        self._take(label, below)

    def _replaced(self, place: Type, before: Any, after: Any) -> None:
        """One kind of value in place of another: the place has changed, and what was below it is gone."""
        self.removed = _inside(added(place, before))
        self.added = _inside(added(place, after))

    def _take(self, label: str, below: _Difference) -> None:
        if below.added:
            self.added[label] = below.added
        if below.removed:
            self.removed[label] = below.removed
        if below.modified:
            self.modified[label] = below.modified


def _are_same(before: Any, after: Any) -> bool:
    """Python would take 1 for true."""
    return before is after or (before == after and isinstance(before, bool) == isinstance(after, bool))


def _has_parts(value: Any) -> bool:
    return type(value) is dict or type(value) is list


def _are(kind: type, before: Any, after: Any) -> bool:
    """Whether both are, nothing counting as an empty one."""
    return (before is None or type(before) is kind) and (after is None or type(after) is kind)


def _inside(node: Fields) -> Fields:
    return {label: child for label, child in node.items() if label != SELF}


def _all_of(place: Type, items: list[Any], mark: str) -> list[Any]:
    return [item for item in items if mark in labelled(place, [item])]
