"""`InstrumentedClient`: a client that reports every call to a counter, for metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import (
    ALL_OBJECTS,
    DEFAULT_DELETE,
    DEFAULT_LOG,
    Client,
    DeleteOptions,
    LogOptions,
    ObjectList,
    Selector,
    WatchEvent,
)
from tarragon.client.streams import closing_stream
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key, Resource

T = TypeVar("T")

OK = 200
CREATED = 201
UNKNOWN = 0
"""The code of a call that was cancelled before its response came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """A finished call. `resource` is written as in kubectl, with the subresource: `tfjobs.kubeflow.org/status`.

    A list counts once, however many pages it has. A call without a response has the code 503.
    """

    verb: str
    resource: str
    code: int
    seconds: float


class CallObserver(Protocol):
    """Receives the reports. Its methods must be fast and must not raise."""

    def on_call(self, call: CallResult) -> None: ...

    def on_watch_started(self, resource: str) -> None: ...

    def on_watch_event(self, resource: str) -> None:
        """Count one event of a watch, bookmarks included."""
        ...

    def on_watch_ended(self, resource: str, code: int) -> None:
        """Count the end of a watch. The code is 200 if the server or the reader ended it."""
        ...


class InstrumentedClient(DelegatingClient):
    """Reports the calls to a client. It does not change them."""

    def __init__(self, cluster: Client, clock: Clock, counter: CallObserver) -> None:
        super().__init__(cluster)
        self._clock = clock
        self._counter = counter

    async def get(self, resource: Resource[T], key: Key) -> T:
        return await self._timed("get", resource.full_name, super().get(resource, key))

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS) -> ObjectList[T]:
        return await self._timed("list", resource.full_name, super().list(resource, selection))

    def watch(self, resource: Resource[T], selection: Selector, since: str) -> AsyncIterator[WatchEvent[T]]:
        return self._watched(resource, super().watch(resource, selection, since))

    def stream_list(self, resource: Resource[T], selection: Selector) -> AsyncIterator[WatchEvent[T]] | None:
        """Reported as a watch."""
        watch = super().stream_list(resource, selection)
        return None if watch is None else self._watched(resource, watch)

    async def _watched(
        self, resource: Resource[T], watch: AsyncIterator[WatchEvent[T]]
    ) -> AsyncIterator[WatchEvent[T]]:
        name = resource.full_name
        self._counter.on_watch_started(name)
        code = OK
        try:
            async with closing_stream(watch) as events:
                async for event in events:
                    self._counter.on_watch_event(name)
                    yield event
        except ApiError as error:
            code = error.code
            raise
        finally:
            self._counter.on_watch_ended(name, code)

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        return await self._timed("create", resource.full_name, super().create(resource, body), CREATED)

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        name = f"{resource.full_name}/{subresource}" if subresource else resource.full_name
        return await self._timed("patch", name, super().patch(resource, key, patch, subresource=subresource))

    async def delete(self, resource: Resource[T], key: Key, options: DeleteOptions = DEFAULT_DELETE) -> None:
        await self._timed("delete", resource.full_name, super().delete(resource, key, options))

    def pod_log(self, key: Key, options: LogOptions = DEFAULT_LOG) -> AsyncIterator[bytes]:
        """Reported as a watch of `pods/log`."""
        return self._log(key, options)

    async def _log(self, key: Key, options: LogOptions) -> AsyncIterator[bytes]:
        name = f"{PODS.full_name}/log"
        self._counter.on_watch_started(name)
        code = OK
        try:
            async with closing_stream(super().pod_log(key, options)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ApiError as error:
            code = error.code
            raise
        finally:
            self._counter.on_watch_ended(name, code)

    async def _timed(self, verb: str, resource: str, call: Awaitable[T], success: int = OK) -> T:
        began = self._clock.monotonic()
        code = success
        try:
            return await call
        except ApiError as error:
            code = error.code
            raise
        except BaseException:
            code = UNKNOWN
            raise
        finally:
            seconds = self._clock.monotonic() - began
            self._counter.on_call(CallResult(verb=verb, resource=resource, code=code, seconds=seconds))
