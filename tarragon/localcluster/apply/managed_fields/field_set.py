"""Sets of fields in the form of FieldsV1: nested maps, keyed by the label of each step of a path.

A label is `f:NAME`, `k:{"KEY":…}`, `v:VALUE` or `i:INDEX`. Its value is a node: empty for a path in the set without
children, with `.` for one in the set with children, without `.` for one that only leads to others. A set is the
children of the root, so the empty set is `{}`. Sets share nodes and are never changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

Fields = dict[str, Any]
Path = tuple[str, ...]

SELF: Final = "."
LEAF_NODE: Final[Fields] = {}
"""The node of a path in the set without children. It is shared by all sets, so never change it."""


def union(left: Fields, right: Fields) -> Fields:
    if not left:
        return right
    return _united(left, right) if right else left


def difference(left: Fields, right: Fields) -> Fields:
    """The paths in `left` only. Removing a path does not remove the paths below it."""
    return left if left.keys().isdisjoint(right) else _left_over(left, right) or {}


def intersection(left: Fields, right: Fields) -> Fields:
    return (_common(left, right) or {}) if left and right else {}


def without_subtrees(fields: Fields, tops: Fields) -> Fields:
    """The set without the paths of `tops` and without everything below them."""
    return fields if fields.keys().isdisjoint(tops) else _cut(fields, tops) or {}


def is_member(node: Fields) -> bool:
    """Whether a node's own path is in the set."""
    return not node or SELF in node


def paths(fields: Fields, before: Path = ()) -> Iterator[Path]:
    """All paths of the set, those of one level before the deeper ones."""
    steps = [(label, node) for label, node in fields.items() if label != SELF]
    for label, node in steps:
        if is_member(node):
            yield (*before, label)
    for label, node in steps:
        yield from paths(node, (*before, label))


def at(path: Path) -> Fields:
    """The set of one path."""
    fields: Fields = LEAF_NODE
    for label in reversed(path):
        fields = {label: fields}
    return fields


def field_set(all_paths: Iterator[Path] | list[Path] | tuple[Path, ...]) -> Fields:
    fields: Fields = {}
    for path in all_paths:
        fields = union(fields, at(path))
    return fields


def _united(left: Fields, right: Fields) -> Fields:
    if left is right:
        return left
    if not left or not right:
        one = left or right
        return one if not one or SELF in one else {SELF: LEAF_NODE, **one}
    result = dict(left)
    for label, node in right.items():
        mine = result.get(label)
        result[label] = node if mine is None else _united(mine, node)
    return result if len(result) == len(left) else dict(sorted(result.items()))


def _left_over(left: Fields, right: Fields) -> Fields | None:
    """The difference of two nodes, None if nothing is left."""
    if not left:
        return None if is_member(right) else left
    if not right:
        return _children(left) or None
    result: Fields = {}
    is_whole = True
    for label, node in left.items():
        other = right.get(label)
        rest = node if other is None else _left_over(node, other)
        is_whole = is_whole and rest is node
        if rest is not None:
            result[label] = rest
    return left if is_whole else _tidy(result)


def _common(left: Fields, right: Fields) -> Fields | None:
    if not left or not right:
        return LEAF_NODE if is_member(left) and is_member(right) else None
    small, large = (left, right) if len(left) < len(right) else (right, left)
    found = ((label, _common(node, large[label])) for label, node in small.items() if label in large)
    return _tidy({label: node for label, node in found if node is not None})


def _cut(node: Fields, tops: Fields) -> Fields | None:
    if is_member(tops):
        return None
    kept = dict(node)
    for label, top in tops.items():
        child = kept.get(label)
        if child is None:
            continue
        rest = _cut(child, top)
        if rest is None:
            del kept[label]
        else:
            kept[label] = rest
    return _tidy(kept) if node else node


def _children(node: Fields) -> Fields:
    return {label: child for label, child in node.items() if label != SELF}


def _tidy(node: Fields) -> Fields | None:
    return LEAF_NODE if len(node) == 1 and SELF in node else node or None
