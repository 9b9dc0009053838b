"""The events about a job and its replicas, including replicas whose pods no longer exist. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Sequence

from tarragon.cli.jobview.jobs import ClusterJob, pods_of
from tarragon.kube.codec import parse_time
from tarragon.kube.core import Pod
from tarragon.kube.meta import Json, JsonObject

_NEVER = dt.datetime.min.replace(tzinfo=dt.UTC)


def events_of_job(
    events: Iterable[JsonObject], job: ClusterJob, pods: Collection[Pod], gone: Collection[str] = ()
) -> Iterator[JsonObject]:
    """Yields the events about the job and its pods.

    `pods` are all existing pods, with any controller; `gone` has the UIDs of pods of the job that no longer exist. An
    event about a pod in neither of them belongs to the job if the pod has the name of one of its replicas and the event
    is not older than the job.
    """
    own = {job.uid, *gone, *(pod.metadata.uid for _, pod in pods_of(job, pods))}
    others = {pod.metadata.uid for pod in pods} - own
    for event in events:
        about: Json = event.get("involvedObject") or {}
        is_of_pod = about.get("kind") == "Pod" and about.get("uid") not in others
        if about.get("uid") in own or (is_of_pod and _is_own(job, event, about)):
            yield event


def sorted_events(events: Iterable[JsonObject]) -> Sequence[JsonObject]:
    """Sorts events by time, oldest first. Most timestamps have whole seconds: ties are broken by resource version."""
    return sorted(events, key=lambda event: ((event_time(event) or _NEVER).replace(microsecond=0), _version(event)))


def event_time(event: JsonObject) -> dt.datetime | None:
    try:
        return parse_time(str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    except ValueError:
        return None


def _is_own(job: ClusterJob, event: JsonObject, about: JsonObject) -> bool:
    if job.job is None or job.dialect is None:
        return False
    at = event_time(event)
    is_since = job.created is None or at is None or at >= job.created
    return is_since and job.dialect.names.replica_of(job.job, str(about.get("name", ""))) is not None


def _version(event: JsonObject) -> int:
    text = str((event.get("metadata") or {}).get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0
