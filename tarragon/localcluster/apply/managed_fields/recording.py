"""Records ownership in an object's managedFields after a create, an update or an apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tarragon.localcluster.api import errors
from tarragon.localcluster.apply.managed_fields import field_set
from tarragon.localcluster.apply.managed_fields.compare import compare
from tarragon.localcluster.apply.managed_fields.entries import (
    BadEntriesError,
    Entry,
    are_equal_without_times,
    faults_of,
    is_reset,
    parse_entries,
)
from tarragon.localcluster.apply.managed_fields.field_set import Fields
from tarragon.localcluster.apply.managed_fields.field_types import type_of
from tarragon.localcluster.apply.managed_fields.ownership import WriteScope, after_update, entry_of
from tarragon.localcluster.apply.managed_fields.reset_fields import ownable, reset_fields
from tarragon.localcluster.apply.managed_fields.zero_values import zero_value
from tarragon.localcluster.kinds.openapi import built_in_names
from tarragon.localcluster.kinds.resource import ServedKind

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WriteOwner:
    """The owner of a write (an entry without fields), and the fields that the server filled in, which nobody owns."""

    entry_header: Entry
    unowned: Fields | None = None


def record_create(served: ServedKind, thing: Json, given: list[Entry] | None, writing: WriteOwner) -> None:
    """Record a create. `given` are entries from the client, which are kept."""
    entries = _of_client(served, thing, given)
    scope = write_scope(served, writing)
    if entries:
        _set_entries(thing, after_update(entries, compare(scope.type, zero_value(served), thing), scope))
        return
    change = compare(scope.type, zero_value(served), ownable(thing, scope.reset_fields))
    owned = field_set.without_subtrees(change.written, scope.reset_fields)
    if owned:
        thing["metadata"]["managedFields"] = [entry_of(scope.entry_header, owned)]


def record_update(
    served: ServedKind, thing: Json, old: Mapping[str, Any], given: list[Entry] | None, writing: WriteOwner
) -> None:
    """Record an update. An object without entries stays without: a client reset them, or it predates managedFields."""
    before = old["metadata"].get("managedFields") or []
    entries = entries_of_served_versions(
        served, before if given == before else _new_entries(served, thing, given, before)
    )
    if not entries:
        thing["metadata"].pop("managedFields", None)
        return
    thing["metadata"]["managedFields"] = before  # so that the comparison finds no change there
    change = compare(type_of(served), old, thing)
    _set_entries(thing, after_update(entries, change, write_scope(served, writing)))


def record_apply(thing: Json, old: Mapping[str, Any] | None, entries: list[Entry] | None) -> None:
    """Record an apply. If only times have changed, the old entries stay."""
    before = ((old or {}).get("metadata") or {}).get("managedFields") or []
    _set_entries(thing, before)
    if thing != old or not are_equal_without_times(before, entries or []):
        _set_entries(thing, entries or [])


def entries_of_served_versions(served: ServedKind, entries: list[Entry]) -> list[Entry]:
    """The entries of versions that the kind has; of custom kinds, of its group. Others own fields of unknown type."""
    if all(entry.get("apiVersion") == served.api_version for entry in entries):
        return entries
    return [entry for entry in entries if _is_known(served, str(entry.get("apiVersion") or ""))]


def _is_known(served: ServedKind, api_version: str) -> bool:
    group, _, version = api_version.rpartition("/")
    return group == served.group if served.is_custom else (group, version, served.kind) in built_in_names()


def write_scope(served: ServedKind, writing: WriteOwner) -> WriteScope:
    reset = reset_fields(served, writing.entry_header.get("subresource") or "")
    unowned = field_set.union(reset, writing.unowned) if writing.unowned else reset
    return WriteScope(type=type_of(served), reset_fields=unowned, entry_header=writing.entry_header)


def _new_entries(served: ServedKind, thing: Json, given: list[Entry] | None, before: list[Entry]) -> list[Entry]:
    if is_reset(given):
        return []
    return _of_client(served, thing, given) or before


def _of_client(served: ServedKind, thing: Json, given: list[Entry] | None) -> list[Entry] | None:
    """The client's entries; None if there are none or they are malformed. Raises Invalid for invalid names."""
    if not given:
        return None
    try:
        entries = parse_entries(given)
    except BadEntriesError:
        return None
    if faults := list(faults_of(entries)):
        raise errors.invalid(served, thing["metadata"].get("name") or "", faults)
    return entries


def _set_entries(thing: Json, entries: list[Entry]) -> None:
    if entries:
        thing["metadata"]["managedFields"] = entries
    else:
        thing["metadata"].pop("managedFields", None)
