"""Writing into an object who owns what of it, after it was created or changed."""

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
    """Whose write it is (an entry without fields), and what is nobody's, as the server has filled it in."""

    title: Entry
    unowned: Fields | None = None


def created(served: Served, thing: Json, given: list[Entry] | None, writing: Writing) -> None:
    """`given` is what the creator has said about ownership, which counts."""
    entries = _of_client(served, thing, given)
    door = door_of(served, writing)
    if entries:
        _set(thing, after_update(entries, compared(door.type, zero(served), thing), door))
        return
    change = compared(door.type, zero(served), ownable(thing, door.reset))
    owned = sets.without(change.written, door.reset)
    if owned:
        thing["metadata"]["managedFields"] = [entry_of(door.title, owned)]


def updated(served: Served, thing: Json, old: Mapping[str, Any], given: list[Entry] | None, writing: Writing) -> None:
    """An object of which nobody owns anything stays so: somebody has asked for it, or it is from before our time."""
    before = old["metadata"].get("managedFields") or []
    entries = of_known_versions(served, before if given == before else _told(served, thing, given, before))
    if not entries:
        thing["metadata"].pop("managedFields", None)
        return
    thing["metadata"]["managedFields"] = before  # so that nothing is to be seen there
    change = compared(type_of(served), old, thing)
    _set(thing, after_update(entries, change, door_of(served, writing)))


def applied(thing: Json, old: Mapping[str, Any] | None, entries: list[Entry] | None) -> None:
    """What an apply has found; where it has changed nothing but times, these stay too."""
    before = ((old or {}).get("metadata") or {}).get("managedFields") or []
    _set(thing, before)
    if thing != old or not same_but_for_times(before, entries or []):
        _set(thing, entries or [])


def of_known_versions(served: Served, entries: list[Entry]) -> list[Entry]:
    """Without those of versions that the kind has not: what they own cannot be found. Of custom kinds, other groups."""
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


def _told(served: Served, thing: Json, given: list[Entry] | None, before: list[Entry]) -> list[Entry]:
    if is_reset(given):
        return []
    return _of_client(served, thing, given) or before


def _of_client(served: Served, thing: Json, given: list[Entry] | None) -> list[Entry] | None:
    """None for what can't be understood, as if nothing had been said. Raises Invalid for names that no one may have."""
    if not given:
        return None
    try:
        entries = understood(given)
    except BadEntriesError:
        return None
    if faults := list(faults_of(entries)):
        raise errors.invalid(served, thing["metadata"].get("name") or "", faults)
    return entries


def _set(thing: Json, entries: list[Entry]) -> None:
    if entries:
        thing["metadata"]["managedFields"] = entries
    else:
        thing["metadata"].pop("managedFields", None)
