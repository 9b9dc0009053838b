"""A hand-written `Client` of one kind of object that lists and watches as a server does, and fails when told to."""

# ruff: noqa: ARG002 - the port's parameters, of which a script needs few

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar

from tarragon.base.clock import FakeClock
from tarragon.client.errors import ApiError, error_from_status
from tarragon.client.port import (
    ALL_OBJECTS,
    DeleteOptions,
    EventType,
    LogOptions,
    ObjectList,
    Selector,
    WatchEvent,
)
from tarragon.kube.codec import decode, encode
from tarragon.kube.meta import Key, ObjectMeta, PartialObject, Resource

T = TypeVar("T")


class Thing(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    value: int = 0


THINGS = Resource(group="example.org", version="v1", plural="things", kind="Thing", model=Thing)


def error(code: int, reason: str, retry_after: int = 0) -> ApiError:
    return error_from_status({"code": code, "reason": reason, "details": {"retryAfterSeconds": retry_after}})


async def settle(clock: FakeClock) -> None:
    """Give every task its turn until, for these small tests, nothing more happens without time."""
    for _ in range(50):
        await clock.sleep(0)


@dataclass(frozen=True, slots=True)
class Cut:
    """A watch gets that many more events; then it ends cleanly, or with an error."""

    after: int
    error: ApiError | None = None


@dataclass(frozen=True, slots=True)
class _Change:
    version: int
    type: EventType
    body: bytes


class ScriptedCluster:
    """`put` and `remove` are what others do; `fail_list`, `cut_watch`, `cut_now` and `forget` are what goes wrong."""

    def __init__(self, namespace: str = "default") -> None:
        self._namespace = namespace
        self.calls: list[tuple[Literal["list", "watch", "stream"], str]] = []
        self._version = 100
        self._uids = 0
        self._objects: dict[Key, bytes] = {}
        self._history: list[_Change] = []
        self._forgotten = 0
        self._list_errors: deque[ApiError] = deque()
        self.streams: deque[Sequence[WatchEvent[bytes]] | ApiError] | None = None
        """The answers to streaming lists; None if it has none."""
        self._cuts: deque[Cut] = deque()
        self._open: list[asyncio.Queue[_Change | Cut]] = []
        self._lost: list[asyncio.Queue[_Change | Cut]] = []

    @property
    def values(self) -> dict[Key, tuple[str, object]]:
        """What is really there: uid and value."""
        bodies = {key: decode(body, dict) for key, body in self._objects.items()}
        return {key: (body["metadata"]["uid"], body["value"]) for key, body in bodies.items()}

    def answer(self, name: str) -> bytes:
        """To a write that has made the object what it is now."""
        return self._objects[Key(self._namespace, name)]

    def put(self, name: str, value: object) -> None:
        key = Key(self._namespace, name)
        before = self._objects.get(key)
        if before is None:
            self._uids += 1
        uid = f"uid-{self._uids}" if before is None else decode(before, dict)["metadata"]["uid"]
        self._version += 1
        metadata = {"name": name, "namespace": self._namespace, "uid": uid, "resourceVersion": str(self._version)}
        self._objects[key] = encode({"metadata": metadata, "value": value})
        self._tell(_Change(self._version, "ADDED" if before is None else "MODIFIED", self._objects[key]))

    def put_without_name(self, name: str) -> None:
        """An object whose metadata nobody can read, kept under that name."""
        self._version += 1
        metadata = {"name": 5, "namespace": [], "resourceVersion": str(self._version)}
        self._objects[Key(self._namespace, name)] = body = encode({"metadata": metadata, "value": 1})
        self._tell(_Change(self._version, "ADDED", body))

    def put_unseen(self, name: str, value: object) -> None:
        """As `put`, and the open watches miss it, though not what comes later."""
        watching, self._open = self._open, []
        self.put(name, value)
        self._open = watching

    def remove(self, name: str) -> None:
        body = self._objects.pop(Key(self._namespace, name), None)
        if body is not None:
            self._version += 1
            self._tell(_Change(self._version, "DELETED", body))

    def put_back(self, version: int) -> None:
        """To what its storage held at that version: what was written later never was."""
        self._history = [change for change in self._history if change.version <= version]
        self._version = version
        self._objects = {
            key: body
            for key, body in self._objects.items()
            if int(decode(body, dict)["metadata"]["resourceVersion"]) <= version
        }

    def bookmark(self) -> None:
        """Versions move on without this kind of object, as on a real server; only a bookmark says so."""
        self._version += 1
        for queue in self._open:
            queue.put_nowait(_Change(self._version, "BOOKMARK", b""))

    def forget(self) -> None:
        """Compaction: watches from before now are refused."""
        self._forgotten = self._version

    def fail_list(self, failure: ApiError) -> None:
        self._list_errors.append(failure)

    def cut_watch(self, cut: Cut) -> None:
        """What will happen to the next watch that begins."""
        self._cuts.append(cut)

    def cut_now(self, failure: ApiError | None = None) -> None:
        """End the watches that are open."""
        for queue in self._open:
            queue.put_nowait(Cut(0, failure))

    def lose_watches(self) -> None:
        """Those that are open now stay so, and bring nothing any more."""
        self._lost += self._open
        self._open.clear()

    def _tell(self, change: _Change) -> None:
        self._history.append(change)
        for queue in self._open:
            queue.put_nowait(change)

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS) -> ObjectList[T]:
        self.calls.append(("list", ""))
        if self._list_errors:
            raise self._list_errors.popleft()
        return ObjectList([decode(body, resource.model) for body in self._objects.values()], str(self._version))

    def stream_list(self, resource: Resource[T], _: Selector) -> AsyncIterator[WatchEvent[T]] | None:
        return None if self.streams is None else self._streamed(resource, self.streams)

    async def _streamed(
        self, resource: Resource[T], answers: deque[Sequence[WatchEvent[bytes]] | ApiError]
    ) -> AsyncIterator[WatchEvent[T]]:
        self.calls.append(("stream", ""))
        answer = answers.popleft()
        if isinstance(answer, ApiError):
            raise answer
        for event in answer:
            decoded = None if event.object is None else decode(event.object, resource.model)
            yield WatchEvent(event.type, event.resource_version, decoded, event.ends_initial_events)

    async def watch(self, resource: Resource[T], selection: Selector, since: str) -> AsyncIterator[WatchEvent[T]]:
        self.calls.append(("watch", since))
        if int(since) < self._forgotten:
            raise error(410, "Expired")
        queue: asyncio.Queue[_Change | Cut] = asyncio.Queue()
        for change in self._history:
            if change.version > int(since):
                queue.put_nowait(change)
        left = self._cuts.popleft() if self._cuts else None
        self._open.append(queue)
        try:
            while left is None or left.after > 0:
                item = await queue.get()
                if isinstance(item, Cut):
                    left = item
                    break
                if left is not None:
                    left = Cut(left.after - 1, left.error)
                yield WatchEvent(item.type, str(item.version), decode(item.body, resource.model) if item.body else None)
            if left.error is not None:
                raise left.error
        finally:
            (self._lost if queue in self._lost else self._open).remove(queue)

    @property
    def version(self) -> int:
        return self._version

    @property
    def watchers(self) -> int:
        return len(self._open)

    async def get(self, resource: Resource[T], key: Key) -> T:
        _unscripted()

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        _unscripted()

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        _unscripted()

    async def delete(self, resource: Resource[T], key: Key, options: DeleteOptions = DeleteOptions()) -> None:  # noqa: B008 - as the port has it
        _unscripted()

    def pod_log(self, key: Key, options: LogOptions = LogOptions()) -> AsyncIterator[bytes]:  # noqa: B008 - as above
        _unscripted()


def _unscripted() -> NoReturn:
    raise AssertionError("a cache only lists and watches")
