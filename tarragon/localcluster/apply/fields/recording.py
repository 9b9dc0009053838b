"""Records ownership in an object's managedFields after a create, an update or an apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tarragon.localcluster.api import errors
from tarragon.localcluster.apply.fields import sets
from tarragon.localcluster.apply.fields.compare import compared
from tarragon.localcluster.apply.fields.entries import (
    BadEntriesError,
    Entry,
    faults_of,
    is_reset,
    same_but_for_times,
    understood,
)
from tarragon.localcluster.apply.fields.ownership import Door, after_update, entry_of
from tarragon.localcluster.apply.fields.reset import ownable, reset_by
from tarragon.localcluster.apply.fields.sets import Fields
from tarragon.localcluster.apply.fields.types import type_of
from tarragon.localcluster.apply.fields.zero import zero
from tarragon.localcluster.kinds.openapi import built_in_names
from tarragon.localcluster.kinds.resource import Served

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Writing:
    """The owner of a write (an entry without fields), and the fields that the server filled in, which nobody owns."""

    title: Entry
    unowned: Fields | None = None


def created(served: Served, thing: Json, given: list[Entry] | None, writing: Writing) -> None:
    """Record a create. `given` are entries from the client, which are kept."""
    entries = _of_client(served, thing, given)
    scope = door_of(served, writing)
    if entries:
        _set_entries(thing, after_update(entries, compared(scope.type, zero(served), thing), scope))
        return
    change = compared(scope.type, zero(served), ownable(thing, scope.reset))
    owned = sets.without(change.written, scope.reset)
    if owned:
        thing["metadata"]["managedFields"] = [entry_of(scope.title, owned)]


def updated(served: Served, thing: Json, old: Mapping[str, Any], given: list[Entry] | None, writing: Writing) -> None:
    """Record an update. An object without entries stays without: a client reset them, or it predates managedFields."""
    before = old["metadata"].get("managedFields") or []
    entries = of_known_versions(served, before if given == before else _new_entries(served, thing, given, before))
    if not entries:
        thing["metadata"].pop("managedFields", None)
        return
    thing["metadata"]["managedFields"] = before  # so that the comparison finds no change there
    change = compared(type_of(served), old, thing)
    _set_entries(thing, after_update(entries, change, door_of(served, writing)))


def applied(thing: Json, old: Mapping[str, Any] | None, entries: list[Entry] | None) -> None:
    """Record an apply. If only times have changed, the old entries stay."""
    before = ((old or {}).get("metadata") or {}).get("managedFields") or []
    _set_entries(thing, before)
    if thing != old or not same_but_for_times(before, entries or []):
        _set_entries(thing, entries or [])


def of_known_versions(served: Served, entries: list[Entry]) -> list[Entry]:
    """The entries of versions that the kind has; of custom kinds, of its group. Others own fields of unknown type."""
    if all(entry.get("apiVersion") == served.api_version for entry in entries):
        return entries
    return [entry for entry in entries if _is_known(served, str(entry.get("apiVersion") or ""))]


def _is_known(served: Served, api_version: str) -> bool:
    group, _, version = api_version.rpartition("/")
    return group == served.group if served.is_custom else (group, version, served.kind) in built_in_names()


def door_of(served: Served, writing: Writing) -> Door:
    reset = reset_by(served, writing.title.get("subresource") or "")
    unowned = sets.union(reset, writing.unowned) if writing.unowned else reset
    return Door(type=type_of(served), reset=unowned, title=writing.title)


def _new_entries(served: Served, thing: Json, given: list[Entry] | None, before: list[Entry]) -> list[Entry]:
    if is_reset(given):
        return []
    return _of_client(served, thing, given) or before


def _of_client(served: Served, thing: Json, given: list[Entry] | None) -> list[Entry] | None:
    """The client's entries; None if there are none or they are malformed. Raises Invalid for invalid names."""
    if not given:
        return None
    try:
        entries = understood(given)
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
