"""Validation of events in `events.k8s.io`, where a new one needs more fields than in the core group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.localcluster.schema.field_errors import FieldError, invalid_value, required

Json = dict[str, Any]

_TYPES = ("Normal", "Warning")
_MAX_NOTE = 1024
_DEPRECATED_FIELDS = (
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("deprecatedSource", "source"),
)


def prepare(event: Json) -> None:
    for field in ("reportingComponent", "reportingInstance"):
        event.setdefault(field, "")
    event.setdefault("source", {})


def faults(event: Mapping[str, Any]) -> Iterator[FieldError]:
    namespace = event["metadata"].get("namespace", "")
    about = (event.get("involvedObject") or {}).get("namespace") or ""
    if (about and about != namespace) or (not about and namespace not in {"default", "kube-system"}):
        yield invalid_value("involvedObject.namespace", about, "does not match event.namespace")


def prepare_new_form(event: Json) -> None:
    """Set an empty source, because the core form always has one."""
    event.setdefault("deprecatedSource", {})


def new_form_faults(event: Mapping[str, Any]) -> Iterator[FieldError]:
    """Faults of any event. One from the core group has no `eventTime`, and fewer rules."""
    namespace = event["metadata"].get("namespace", "")
    about = (event.get("regarding") or {}).get("namespace") or ""
    if (about and about != namespace) or (not about and namespace not in {"default", "kube-system"}):
        yield invalid_value("involvedObject.namespace", about, "does not match event.namespace")
    if not event.get("eventTime"):
        return
    for field in ("reportingController", "reportingInstance", "action", "reason"):
        if not event.get(field):
            yield required(field)
    yield from _type_faults(event)
    if len(event.get("note") or "") > _MAX_NOTE:
        yield invalid_value("message", "", f"can have at most {_MAX_NOTE} characters")


def creation_faults(event: Mapping[str, Any]) -> Iterator[FieldError]:
    if not event.get("eventTime"):
        yield required("eventTime")
        yield from _type_faults(event)
    for field, core_name in _DEPRECATED_FIELDS:
        if event.get(field):
            yield invalid_value(core_name, event[field], "needs to be unset")


def _type_faults(event: Mapping[str, Any]) -> Iterator[FieldError]:
    given = str(event.get("type") or "")
    if given not in _TYPES:
        yield invalid_value("type", given, f"has invalid value: {given}")
