"""Entries of metadata.managedFields: parsing, validation, order, and the limit on their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tarragon.kube.codec import format_time, parse_time
from tarragon.localcluster.apply.managed_fields.field_set import LEAF_NODE, SELF, Fields, union
from tarragon.localcluster.apply.managed_fields.path_elements import BadLabelError, canonical
from tarragon.localcluster.schema.field_errors import FieldError, invalid_value

Entry = dict[str, Any]
"""As in an object: manager, operation, apiVersion, time, fieldsType, fieldsV1 and optionally subresource."""

MAX_UPDATE_ENTRIES = 10
"""The maximum number of Update entries; beyond it the oldest are merged."""

_ANCIENT = "ancient-changes"
_OPERATIONS = ("Apply", "Update")
_LONGEST_MANAGER = 128
_LONGEST_SUBRESOURCE = 256


class BadEntriesError(ValueError):
    """A client's managedFields are malformed."""


def owner_key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """Identifies an entry's owner. An Apply entry is the same owner in all versions."""
    is_apply = entry.get("operation") == "Apply"
    version = "" if is_apply else entry.get("apiVersion")
    return entry.get("manager"), entry.get("operation"), version, entry.get("subresource") or ""


def is_reset(given: Any) -> bool:
    """Whether a client asks to reset ownership."""
    return given is not None and (not given or given == [{}])


def parse_entries(given: Iterable[Entry]) -> list[Entry]:
    """Parse a client's entries, and bring their field sets into canonical form. Raises BadEntriesError."""
    found: dict[tuple[Any, ...], Entry] = {}
    for entry in given:
        if entry.get("operation") not in _OPERATIONS:
            raise BadEntriesError("operation must be `Apply` or `Update`")
        if not entry.get("apiVersion"):
            raise BadEntriesError("apiVersion must not be empty")
        if entry.get("fieldsType") != "FieldsV1":
            raise BadEntriesError(f"invalid fieldsType {entry.get('fieldsType', '')!r}")
        fields = _canonical(entry.get("fieldsV1") or {}, is_root=True) or {}
        found[owner_key(entry)] = {**entry, "fieldsV1": fields}
    return list(found.values())


def faults_of(entries: Sequence[Entry]) -> Iterable[FieldError]:
    for index, entry in enumerate(entries):
        place = f"metadata.managedFields[{index}]"
        manager = str(entry.get("manager") or "")
        if len(manager.encode()) > _LONGEST_MANAGER:
            message = f"Too long: may not be more than {_LONGEST_MANAGER} bytes"
            yield FieldError(f"{place}.manager", "FieldValueTooLong", message)
        if not manager.isprintable():
            yield invalid_value(f"{place}.manager", manager, "should only contain printable characters")
        if len(str(entry.get("subresource") or "")) > _LONGEST_SUBRESOURCE:
            message = f"Too long: may not be more than {_LONGEST_SUBRESOURCE} bytes"
            yield FieldError(f"{place}.subresource", "FieldValueTooLong", message)


def sorted_entries(entries: list[Entry]) -> list[Entry]:
    """Sort entries: Apply before Update, then by time, to the second."""
    return entries if len(entries) < 2 else sorted(entries, key=_rank)  # noqa: PLR2004 - one is in order


def merge_oldest_updates(entries: list[Entry]) -> list[Entry]:
    """Merge the oldest Update entries of each version if there are too many."""
    updates = sorted((one for one in entries if one.get("operation") == "Update"), key=_age)
    excess = len(updates) - MAX_UPDATE_ENTRIES
    oldest: dict[Any, Entry] = {}
    for entry in updates:
        if excess <= 0:
            break
        version = entry.get("apiVersion")
        older = oldest.get(version)
        oldest[version] = entry
        if older is not None:
            oldest[version] = _merged(older, entry)
            entries = [one for one in entries if one is not older and one is not entry] + [oldest[version]]
            excess -= 1
    return entries


def are_equal_without_times(left: Sequence[Entry], right: Sequence[Entry]) -> bool:
    return [_timeless(one) for one in left] == [_timeless(one) for one in right]


def _merged(older: Entry, newer: Entry) -> Entry:
    """One entry for both, with the newer one's time."""
    return {
        "manager": _ANCIENT,
        "operation": "Update",
        "apiVersion": newer.get("apiVersion"),
        **({"time": newer["time"]} if newer.get("time") else {}),
        "fieldsType": "FieldsV1",
        "fieldsV1": union(older["fieldsV1"], newer["fieldsV1"]),
    }


def _rank(entry: Entry) -> tuple[Any, ...]:
    return (
        entry.get("operation") or "",
        _seconds(entry),
        entry.get("manager") or "",
        entry.get("apiVersion") or "",
        entry.get("subresource") or "",
    )


def _age(entry: Entry) -> tuple[Any, ...]:
    return _seconds(entry), str(entry.get("manager") or ""), str(entry.get("apiVersion") or "")


def _seconds(entry: Entry) -> str:
    """The entry's time to the second, as sortable text. Times that are not in UTC are converted."""
    time = entry.get("time") or ""
    if not time or time.endswith("Z"):
        return str(time)[:19]
    return format_time(parse_time(time))[:19]


def _timeless(entry: Entry) -> Entry:
    return {name: value for name, value in entry.items() if name != "time"}


def _canonical(node: Any, *, is_root: bool = False) -> Fields | None:
    """The node in canonical form, None if neither its path nor one below it is in the set."""
    if not isinstance(node, dict):
        raise BadEntriesError("fieldsV1 must be an object of objects")
    children: Fields = {}
    for label, child in node.items():
        if label == SELF:
            continue
        try:
            step = canonical(label)
        except BadLabelError as error:
            raise BadEntriesError(str(error)) from error
        below = _canonical(child)
        if step is not None and below is not None:
            children[step] = below
    children = dict(sorted(children.items()))
    if is_root or not (SELF in node or not node):
        return children or None
    return {SELF: LEAF_NODE, **children} if children else LEAF_NODE
