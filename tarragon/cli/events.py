"""The events about a job and its replicas, also about those whose pods are gone. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Sequence

from tarragon.cli.jobs import Known
from tarragon.kube.codec import moment
from tarragon.kube.meta import Json, JsonObject

_NEVER = dt.datetime.min.replace(tzinfo=dt.UTC)


def of_job(events: Iterable[JsonObject], job: Known, uids: Collection[str]) -> Iterator[JsonObject]:
    """Those about it, about the pods of these uids, and about any pod named as its own since it was created."""
    for event in events:
        about: Json = event.get("involvedObject") or {}
        if about.get("uid") in {job.uid, *uids} or (about.get("kind") == "Pod" and _is_own(job, event, about)):
            yield event


def in_order(events: Iterable[JsonObject]) -> Sequence[JsonObject]:
    """The oldest first; those of one second, which is all that most of them tell, as they were written."""
    return sorted(events, key=lambda event: ((when(event) or _NEVER).replace(microsecond=0), _version(event)))


def when(event: JsonObject) -> dt.datetime | None:
    try:
        return moment(str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    except ValueError:
        return None


def _is_own(job: Known, event: JsonObject, about: JsonObject) -> bool:
    if job.job is None or job.dialect is None:
        return False
    at = when(event)
    is_since = job.born is None or at is None or at >= job.born
    return is_since and job.dialect.names.replica(job.job, str(about.get("name", ""))) is not None


def _version(event: JsonObject) -> int:
    text = str((event.get("metadata") or {}).get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0
