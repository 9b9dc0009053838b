"""Events, told once and counted after that, at one call each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, ApiError, NotFound
from tarragon.client.port import Cluster
from tarragon.kube import event as events
from tarragon.kube.codec import timestamp
from tarragon.kube.core import EVENTS
from tarragon.kube.event import MESSAGE_LIMIT, Event, ObjectReference
from tarragon.kube.meta import Json, Key, Resource

Doing = Literal["Create", "Delete"]

MOST_REMEMBERED = 4096
"""Events whose counts are kept in mind. Of older ones the API server knows."""

_COUNTED = Resource(group="", version="v1", plural="events", kind="Event", model=dict)
_ROOM_FOR_REST = len(" and 10000 more")


class Recorder:
    """An event that can't be written is not worth failing a job for: no permission, a quota, a busy server."""

    def __init__(self, cluster: Cluster, clock: Clock, component: str = "tarragon") -> None:
        self._cluster = cluster
        self._clock = clock
        self._component = component
        self._counts: OrderedDict[str, int] = OrderedDict()

    async def record(self, event: Event) -> None:
        """Tell it; when it was told before, count. One that is meant to be told `once` is not counted."""
        known = self._counts.get(event.name)
        if known is not None and event.once:
            return
        try:
            self._remember(event.name, await (self._tell(event) if known is None else self._count(event, known + 1)))
        except ApiError:
            return

    async def _tell(self, event: Event) -> int:
        try:
            await self._cluster.create(EVENTS, events.body(event, self._clock.now(), self._component))
        except AlreadyExists:
            # By an operator before us. How often, the answer to a patch tells: that spares a permission to read.
            told = await self._patch(event, {})
            count = int(told.get("count") or 1)
            return count if event.once else await self._count(event, count + 1)
        return 1

    async def _count(self, event: Event, count: int) -> int:
        try:
            await self._patch(event, {"count": count})
        except NotFound:
            # Events are kept for an hour or so.
            return await self._tell(event)
        return count

    async def _patch(self, event: Event, change: dict[str, int]) -> dict[str, Json]:
        key = Key(event.about.key.namespace or "default", event.name)
        return await self._cluster.patch(_COUNTED, key, {**change, "lastTimestamp": timestamp(self._clock.now())})

    def _remember(self, name: str, count: int) -> None:
        self._counts[name] = count
        self._counts.move_to_end(name)
        if len(self._counts) > MOST_REMEMBERED:
            self._counts.popitem(last=False)


def summary(about: ObjectReference, doing: Doing, kind: str, names: Sequence[str]) -> Event:
    """What old operators told pod by pod, in one event: a gang of a thousand costs one call more, not a thousand."""
    word = "Job" if kind == about.kind else kind
    begin = f"{doing}d {word.lower()}{'' if len(names) == 1 else 's'}: "
    return Event(
        about=about, type="Normal", reason=f"Successful{doing}{word}", message=begin + _as_many_as_fit(begin, names)
    )


def _as_many_as_fit(begin: str, names: Sequence[str]) -> str:
    room = MESSAGE_LIMIT - len(begin) - _ROOM_FOR_REST
    shown = 0
    for name in names:
        room -= len(name) + len(", ")
        if room < 0:
            break
        shown += 1
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest else "")
