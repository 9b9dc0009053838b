"""The list metadata.managedFields: read from anybody, put in order, kept within bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tarragon.kube.codec import moment, timestamp
from tarragon.localcluster.apply.fields.labels import BadLabelError, canonical
from tarragon.localcluster.apply.fields.sets import MEMBER, SELF, Fields, union
from tarragon.localcluster.schema.field_errors import Fault, invalid_value

Entry = dict[str, Any]
"""As it stands in an object: manager, operation, apiVersion, time, fieldsType, fieldsV1, maybe subresource."""

MOST_UPDATES = 10
"""More entries of updates than these, and the oldest are put together."""

_ANCIENT = "ancient-changes"
_OPERATIONS = ("Apply", "Update")
_LONGEST_MANAGER = 128
_LONGEST_SUBRESOURCE = 256


class BadEntriesError(ValueError):
    """Somebody's managedFields are none."""


def identity(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """Who it is about. Whoever applies is the same in all versions."""
    is_apply = entry.get("operation") == "Apply"
    version = "" if is_apply else entry.get("apiVersion")
    return entry.get("manager"), entry.get("operation"), version, entry.get("subresource") or ""


def is_reset(given: Any) -> bool:
    """Whether a client asks for ownership to be forgotten."""
    return given is not None and (not given or given == [{}])


def understood(given: Iterable[Entry]) -> list[Entry]:
    """What a client has written, with its sets as they are written here. Raises BadEntriesError."""
    found: dict[tuple[Any, ...], Entry] = {}
    for entry in given:
        if entry.get("operation") not in _OPERATIONS:
            raise BadEntriesError("operation must be `Apply` or `Update`")
        if not entry.get("apiVersion"):
            raise BadEntriesError("apiVersion must not be empty")
        if entry.get("fieldsType") != "FieldsV1":
            raise BadEntriesError(f"invalid fieldsType {entry.get('fieldsType', '')!r}")
        fields = _canonical(entry.get("fieldsV1") or {}, is_root=True) or {}
        found[identity(entry)] = {**entry, "fieldsV1": fields}
    return list(found.values())


def faults_of(entries: Sequence[Entry]) -> Iterable[Fault]:
    for index, entry in enumerate(entries):
        place = f"metadata.managedFields[{index}]"
        manager = str(entry.get("manager") or "")
        if len(manager.encode()) > _LONGEST_MANAGER:
            message = f"Too long: may not be more than {_LONGEST_MANAGER} bytes"
            yield Fault(f"{place}.manager", "FieldValueTooLong", message)
        if not manager.isprintable():
            yield invalid_value(f"{place}.manager", manager, "should only contain printable characters")
        if len(str(entry.get("subresource") or "")) > _LONGEST_SUBRESOURCE:
            message = f"Too long: may not be more than {_LONGEST_SUBRESOURCE} bytes"
            yield Fault(f"{place}.subresource", "FieldValueTooLong", message)


def ordered(entries: list[Entry]) -> list[Entry]:
    """Those who apply first, then by time, to the second."""
    return entries if len(entries) < 2 else sorted(entries, key=_rank)  # noqa: PLR2004 - one is in order


def bounded(entries: list[Entry]) -> list[Entry]:
    """Of too many updates the oldest of each version become one."""
    updates = sorted((one for one in entries if one.get("operation") == "Update"), key=_age)
    spare = len(updates) - MOST_UPDATES
    first: dict[Any, Entry] = {}
    for entry in updates:
        if spare <= 0:
            break
        version = entry.get("apiVersion")
        older = first.get(version)
        first[version] = entry
        if older is not None:
            first[version] = _put_together(older, entry)
            entries = [one for one in entries if one is not older and one is not entry] + [first[version]]
            spare -= 1
    return entries


def same_but_for_times(left: Sequence[Entry], right: Sequence[Entry]) -> bool:
    return [_timeless(one) for one in left] == [_timeless(one) for one in right]


def _put_together(older: Entry, newer: Entry) -> Entry:
    """With the newer one's time."""
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


def _seconds(entry: Entry) -> str | float:
    """Times are UTC and written alike, so that their texts sort; others are read."""
    time = entry.get("time") or ""
    if not time or time.endswith("Z"):
        return str(time)[:19]
    return timestamp(moment(time))[:19]


def _timeless(entry: Entry) -> Entry:
    return {name: value for name, value in entry.items() if name != "time"}


def _canonical(node: Any, *, is_root: bool = False) -> Fields | None:
    """None for a place that is not in the set and leads nowhere."""
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
    return {SELF: MEMBER, **children} if children else MEMBER
