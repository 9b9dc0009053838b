"""Updates ownership: an update owns what it changes; an apply owns what it contains, and releases the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tarragon.localcluster.apply.managed_fields import field_set
from tarragon.localcluster.apply.managed_fields.compare import Comparison, compare
from tarragon.localcluster.apply.managed_fields.conflicts import FieldConflict, FieldConflictsError
from tarragon.localcluster.apply.managed_fields.entries import Entry, merge_oldest_updates, owner_key, sorted_entries
from tarragon.localcluster.apply.managed_fields.extract import applied_fields
from tarragon.localcluster.apply.managed_fields.field_set import Fields
from tarragon.localcluster.apply.managed_fields.field_types import FieldType
from tarragon.localcluster.apply.managed_fields.merge import merge, remove_fields, with_parents
from tarragon.localcluster.apply.managed_fields.reset_fields import UNOWNED_FIELDS

Json = dict[str, Any]

BEFORE_FIRST_APPLY = "before-first-apply"
"""The owner of all fields of an object without managedFields when it is first applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteScope:
    """The scope of a write: the object's type, the fields that the write cannot change, and the owner.

    `title` is the owner's entry without its fields.
    """

    type: FieldType
    reset_fields: Fields
    entry_header: Entry


def after_update(entries: Sequence[Entry], change: Comparison, scope: WriteScope) -> list[Entry]:
    """The entries after an update that made this change."""
    change = change.without(scope.reset_fields)
    taken = field_set.difference(change.written, UNOWNED_FIELDS)
    mine = owner_key(scope.entry_header)
    result: list[Entry] = []
    own: Entry | None = None
    for entry in entries:
        if owner_key(entry) == mine:
            own = _reduced(entry, change.removed)
        elif (rest := _reduced(entry, change.written, change.removed)) is not None:
            result.append(rest)
    if taken:
        own = entry_of(scope.entry_header, field_set.union(own["fieldsV1"], taken) if own is not None else taken)
    return sorted_entries(merge_oldest_updates([*result, own] if own is not None else result))


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result of an apply. If nothing changes, it is the live object, and times in entries stay."""

    thing: Json
    entries: list[Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveObject:
    """The live object without its managedFields, these entries, and the zero value of its kind."""

    thing: Json
    entries: Sequence[Entry]
    zero: Json

    def with_owner(self, scope: WriteScope) -> LiveObject:
        """The same, with an owner of everything if the object has no entries."""
        if self.entries:
            return self
        first = replace(
            scope, entry_header={**scope.entry_header, "manager": BEFORE_FIRST_APPLY, "operation": "Update"}
        )
        first.entry_header.pop("subresource", None)
        return replace(self, entries=after_update((), compare(scope.type, self.zero, self.thing), first))


def after_apply(live: LiveObject, applied: Json, scope: WriteScope, *, force: bool) -> ApplyResult:
    """Apply an object to the live one. Raises FieldConflictsError."""
    live = live.with_owner(scope)
    mine = owner_key(scope.entry_header)
    before = next((entry for entry in live.entries if owner_key(entry) == mine), None)
    others = [entry for entry in live.entries if owner_key(entry) != mine]
    wanted = field_set.without_subtrees(applied_fields(scope.type, applied), scope.reset_fields)
    result = merge(scope.type, live.thing, applied)
    if before is not None:
        owned = [wanted, *(entry["fieldsV1"] for entry in others)]
        result = _pruned(scope.type, result, before["fieldsV1"], owned)
    change = compare(scope.type, live.thing, result).without(scope.reset_fields)
    conflicts = [FieldConflict(one, common) for one in others if (common := _touched(one, change))]
    if conflicts and not force:
        raise FieldConflictsError(conflicts)
    kept = [rest for one in others if (rest := _reduced(one, change.written, change.removed)) is not None]
    is_same = change == Comparison({}, {}, {}) and result == live.thing
    own = _owned_by_apply(scope, before, field_set.difference(wanted, UNOWNED_FIELDS), is_same=is_same)
    return ApplyResult(live.thing if is_same else result, sorted_entries([*kept, *own]))


def _owned_by_apply(scope: WriteScope, before: Entry | None, wanted: Fields, *, is_same: bool) -> list[Entry]:
    if not wanted:
        return []
    title = {name: value for name, value in scope.entry_header.items() if name != "time"}
    time = (before or {}).get("time") if is_same else scope.entry_header.get("time")
    return [entry_of({**title, "time": time} if time else title, wanted)]


def _touched(entry: Entry, change: Comparison) -> Fields:
    return field_set.intersection(entry["fieldsV1"], change.written)


def _pruned(field_type: FieldType, thing: Json, last: Fields, owned: Sequence[Fields]) -> Json:
    """The object without the fields that the manager applied before and omits now, unless others own them too."""
    lost = with_parents(field_type, last)
    managed: Fields = {}
    for one in owned:
        managed = field_set.union(managed, one)
    everything = with_parents(field_type, applied_fields(field_type, thing))
    bare = remove_fields(field_type, thing, lost) or {}
    kept = field_set.union(
        with_parents(field_type, applied_fields(field_type, bare)), with_parents(field_type, managed)
    )
    rest = remove_fields(field_type, thing, field_set.difference(everything, kept)) or {}
    gone = field_set.difference(everything, with_parents(field_type, applied_fields(field_type, rest)))
    return remove_fields(field_type, thing, field_set.intersection(gone, lost)) or {}


def _reduced(entry: Entry, *gone: Fields) -> Entry | None:
    fields = entry["fieldsV1"]
    for one in gone:
        fields = field_set.difference(fields, one)
    if fields is entry["fieldsV1"]:
        return entry if fields else None
    return {**entry, "fieldsV1": fields} if fields else None


def entry_of(title: Entry, fields: Fields) -> Entry:
    entry = {name: value for name, value in title.items() if name != "subresource"}
    entry["fieldsType"], entry["fieldsV1"] = "FieldsV1", fields
    return {**entry, "subresource": title["subresource"]} if title.get("subresource") else entry
