"""Records Kubernetes events: the first occurrence creates the event, repetitions increment its count."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, ApiError, NotFound
from tarragon.client.port import Client
from tarragon.kube import event as events
from tarragon.kube.codec import format_time
from tarragon.kube.core import EVENTS
from tarragon.kube.event import MESSAGE_LIMIT, Event, ObjectReference
from tarragon.kube.meta import Json, Key, Resource

Operation = Literal["Create", "Delete"]

MAX_CACHED_COUNTS = 4096
"""Maximum number of events whose counts are cached; older counts are read from the API server."""

_COUNTED = Resource(group="", version="v1", plural="events", kind="Event", model=dict)
_SUFFIX_LENGTH = len(" and 10000 more")


class EventRecorder:
    """Writes events. A failed write (no permission, a quota, a busy server) is ignored: it must not fail the job."""

    def __init__(self, cluster: Client, clock: Clock, component: str = "tarragon") -> None:
        self._cluster = cluster
        self._clock = clock
        self._component = component
        self._counts: OrderedDict[str, int] = OrderedDict()

    async def record(self, event: Event) -> None:
        """Create the event, or increment the count of an existing one. An `is_lasting_state` event is never counted."""
        count = self._counts.get(event.name)
        if count is not None and event.is_lasting_state:
            return
        try:
            self._remember(event.name, await (self._create(event) if count is None else self._count(event, count + 1)))
        except ApiError:
            return

    async def _create(self, event: Event) -> int:
        try:
            await self._cluster.create(EVENTS, events.event_object(event, self._clock.now(), self._component))
        except AlreadyExists:
            # A previous operator created it. The response to a patch has the count, so no read permission is needed.
            existing = await self._patch(event, {})
            count = int(existing.get("count") or 1)
            return count if event.is_lasting_state else await self._count(event, count + 1)
        return 1

    async def _count(self, event: Event, count: int) -> int:
        try:
            await self._patch(event, {"count": count})
        except NotFound:
            # The API server deletes events after an hour by default.
            return await self._create(event)
        return count

    async def _patch(self, event: Event, change: dict[str, int]) -> dict[str, Json]:
        key = Key(event.involved_object.key.namespace or "default", event.name)
        return await self._cluster.patch(_COUNTED, key, {**change, "lastTimestamp": format_time(self._clock.now())})

    def _remember(self, name: str, count: int) -> None:
        self._counts[name] = count
        self._counts.move_to_end(name)
        if len(self._counts) > MAX_CACHED_COUNTS:
            self._counts.popitem(last=False)


def summary_event(about: ObjectReference, doing: Operation, kind: str, names: Sequence[str]) -> Event:
    """One event for all created or deleted objects of a kind; older operators write one event per pod."""
    kind_name = "Job" if kind == about.kind else kind
    prefix = f"{doing}d {kind_name.lower()}{'' if len(names) == 1 else 's'}: "
    return Event(
        involved_object=about,
        type="Normal",
        reason=f"Successful{doing}{kind_name}",
        message=prefix + _join_up_to_limit(prefix, names),
    )


def _join_up_to_limit(prefix: str, names: Sequence[str]) -> str:
    room = MESSAGE_LIMIT - len(prefix) - _SUFFIX_LENGTH
    shown = 0
    for name in names:
        room -= len(name) + len(", ")
        if room < 0:
            break
        shown += 1
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest else "")
