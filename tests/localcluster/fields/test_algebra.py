"""Sets of fields, compared with sets of paths, and properties of every apply."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.kube.codec import decode, encode
from tarragon.localcluster.apply.managed_fields import field_set
from tarragon.localcluster.apply.managed_fields.compare import compare
from tarragon.localcluster.apply.managed_fields.conflicts import FieldConflictsError
from tarragon.localcluster.apply.managed_fields.entries import Entry, parse_entries
from tarragon.localcluster.apply.managed_fields.extract import added_fields, applied_fields
from tarragon.localcluster.apply.managed_fields.field_set import Fields, Path
from tarragon.localcluster.apply.managed_fields.field_types import type_of
from tarragon.localcluster.apply.managed_fields.ownership import (
    ApplyResult,
    LiveObject,
    WriteScope,
    after_apply,
    after_update,
)
from tarragon.localcluster.apply.managed_fields.reset_fields import UNOWNED_FIELDS
from tarragon.localcluster.kinds.resource import ServedKind

Json = dict[str, Any]

few = settings(max_examples=40)

SPEC = {
    "type": "object",
    "properties": {
        "size": {"type": "integer"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "plain": {"type": "array", "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "zone"],
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "zone": {"type": "string", "default": "here"},
                    "size": {"type": "integer"},
                    "more": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
                },
            },
        },
    },
}
KIND = type_of(
    ServedKind(
        group="example.com",
        version="v1",
        plural="gizmos",
        kind="Gizmo",
        is_custom=True,
        openapi={"type": "object", "properties": {"spec": SPEC}},
    )
)

_labels = st.sampled_from(["f:a", "f:b", "f:c", 'k:{"name":"x"}', 'v:"x"', "i:0"])
_paths = st.lists(st.lists(_labels, min_size=1, max_size=4).map(tuple), max_size=12)
_text = st.sampled_from(["a", "b", "c"])
_size = st.integers(0, 3)
_map = st.dictionaries(_text, _text, max_size=3)
_more = st.fixed_dictionaries({}, optional={"a": _text, "b": _text})
_part = st.fixed_dictionaries({"name": _text}, optional={"zone": _text, "size": _size, "more": _more})
_free = st.recursive(
    _size | _text | st.booleans(),
    lambda inner: st.dictionaries(_text, inner, max_size=2) | st.lists(inner, max_size=2),
    max_leaves=5,
)


def _key(part: Json) -> tuple[str, str]:
    return part["name"], part.get("zone", "here")


_spec = st.fixed_dictionaries(
    {},
    optional={
        "size": _size,
        "labels": _map,
        "whole": _map,
        "free": st.dictionaries(_text, _free, max_size=2),
        "tags": st.lists(_text, unique=True, max_size=3),
        "plain": st.lists(_text, max_size=3),
        "parts": st.lists(_part, unique_by=_key, max_size=3),
    },
)
_objects = _spec.map(lambda spec: {"apiVersion": "example.com/v1", "kind": "Gizmo", "metadata": {}, "spec": spec})


def door(manager: str, operation: str = "Apply") -> WriteScope:
    title = {"manager": manager, "operation": operation, "apiVersion": "example.com/v1", "time": "2026-01-01T00:00:00Z"}
    return WriteScope(type=KIND, reset_fields={}, entry_header=title)


def applied(live: ApplyResult, body: Json, manager: str) -> ApplyResult:
    return after_apply(
        LiveObject(thing=live.thing, entries=live.entries, zero={}),
        decode(encode(body), dict),
        door(manager),
        force=True,
    )


def owned(result: ApplyResult, manager: str) -> Fields:
    return next((one["fieldsV1"] for one in result.entries if one["manager"] == manager), {})


def as_set(fields: Fields) -> set[Path]:
    return set(field_set.paths(fields))


NOTHING = ApplyResult({}, [])


@few
@given(_paths, _paths)
def test_sets_of_fields_are_sets_of_paths(left: list[Path], right: list[Path]) -> None:
    one, other = field_set.field_set(left), field_set.field_set(right)

    assert as_set(field_set.union(one, other)) == {*left, *right}
    assert as_set(field_set.difference(one, other)) == {*left} - {*right}
    assert as_set(field_set.intersection(one, other)) == {*left} & {*right}


@few
@given(_paths, _paths)
def test_without_removes_paths_and_everything_below_them(left: list[Path], right: list[Path]) -> None:
    cut = field_set.without_subtrees(field_set.field_set(left), field_set.field_set(right))

    assert as_set(cut) == {path for path in left if not any(path[: len(top)] == top for top in right)}


@few
@given(_paths, _paths)
def test_equal_sets_have_the_same_form(left: list[Path], right: list[Path]) -> None:
    together = field_set.union(field_set.field_set(left), field_set.field_set(right))

    assert encode(together) == encode(field_set.field_set([*right, *left]))


@few
@given(_paths)
def test_a_set_is_read_as_it_was_written(chosen: list[Path]) -> None:
    entry: Entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    written = decode(encode({**entry, "fieldsV1": field_set.field_set(chosen)}), dict)

    assert encode(parse_entries([written])[0]["fieldsV1"]) == encode(field_set.field_set(chosen))


@few
@given(_objects, _objects)
def test_a_comparison_separates_added_removed_and_modified_fields(old: Json, new: Json) -> None:
    change = compare(KIND, old, new)

    before, after = (as_set(added_fields(KIND, one)) for one in (old, new))
    assert as_set(change.added) == after - before - as_set(change.modified)
    assert as_set(change.removed) == before - after - as_set(change.modified)
    assert not as_set(change.added) & as_set(change.removed)
    assert (old == new) == (change == compare(KIND, old, old))


@few
@given(_objects, _objects)
def test_a_repeated_apply_changes_nothing(first: Json, body: Json) -> None:
    before_apply = applied(NOTHING, first, "one")
    once = applied(before_apply, body, "two")

    twice = applied(once, body, "two")

    assert (twice.thing, twice.entries) == (once.thing, once.entries)


@few
@given(_objects, _objects)
def test_an_apply_owns_exactly_the_applied_fields(first: Json, body: Json) -> None:
    result = applied(applied(NOTHING, first, "one"), body, "two")

    assert as_set(owned(result, "two")) == as_set(applied_fields(KIND, body)) - as_set(UNOWNED_FIELDS)


@few
@given(_objects, _objects)
def test_the_only_applier_gets_exactly_what_it_applied(first: Json, body: Json) -> None:
    """Fields that were applied before and are omitted now are removed."""
    result = applied(applied(NOTHING, first, "one"), body, "one")

    left = as_set(applied_fields(KIND, result.thing)) - as_set(applied_fields(KIND, body))
    assert left == set()


@few
@given(_objects, _objects, _objects)
def test_fields_that_others_own_stay(first: Json, shared: Json, body: Json) -> None:
    both = applied(applied(NOTHING, first, "one"), shared, "two")

    result = applied(both, body, "one")

    assert as_set(owned(result, "two")) <= as_set(added_fields(KIND, result.thing))


@few
@given(_objects, _objects)
def test_changing_fields_of_others_without_force_is_a_conflict(first: Json, body: Json) -> None:
    before_apply = applied(NOTHING, first, "one")
    live = LiveObject(thing=before_apply.thing, entries=before_apply.entries, zero={})
    changed = as_set(compare(KIND, before_apply.thing, applied(before_apply, body, "two").thing).written)
    disputed = changed & as_set(owned(before_apply, "one"))

    with pytest.raises(FieldConflictsError) if disputed else nullcontext() as caught:
        after_apply(live, body, door("two"), force=False)

    assert caught is None or as_set(caught.value.fields) == disputed


@few
@given(_objects, _objects)
def test_an_update_takes_changed_fields_from_all_other_owners(first: Json, new: Json) -> None:
    before_apply = applied(NOTHING, first, "one")
    change = compare(KIND, before_apply.thing, new)

    entries = after_update(before_apply.entries, change, door("editor", "Update"))

    mine = owned(ApplyResult(new, entries), "editor")
    assert as_set(mine) == as_set(change.written) - as_set(UNOWNED_FIELDS)
    assert not as_set(mine) & as_set(owned(ApplyResult(new, entries), "one"))
