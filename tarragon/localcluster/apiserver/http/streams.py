"""Long-running responses. Each ends with its source, its deadline, its client or the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

from aiohttp import web

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError
from tarragon.kube.codec import encode
from tarragon.localcluster.api.requests import EncodedEvent
from tarragon.localcluster.apiserver.http.connection import Connection
from tarragon.localcluster.registry.api import Watch

Render = Callable[[EncodedEvent], bytes]

_CLOSING_SECONDS = 5.0
"""How long to wait for a client that does not read the end of its stream."""

_FIRST_OUTPUT_SECONDS = 1.0
"""How long to wait for the first output of a log before its headers are sent; an error before that sets the status."""


class Streams:
    """The open streams of a server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pumps: set[asyncio.Task[None]] = set()

    @property
    def count(self) -> int:
        return len(self._pumps)

    def end_all(self) -> None:
        """End every stream, because the server stops."""
        for pump in self._pumps:
            pump.cancel()

    async def watch(
        self, request: web.BaseRequest, watch: Watch, render: Render, *, seconds: float, bookmark_last: bool
    ) -> web.StreamResponse:
        """Send one line per event until the source or the deadline ends the watch."""
        response = _begun("application/json")
        await response.prepare(request)
        last = b""
        try:
            await self._run(request, _events(watch, render, response), seconds)
            last = render(watch.bookmark()) if bookmark_last else b""
        except ApiError as error:
            last = error_line(error)
        finally:
            watch.close()
        await _finish(request, response, last)
        return response

    async def log(
        self, request: web.BaseRequest, chunks: AsyncIterator[bytes], limit: int | None
    ) -> web.StreamResponse:
        """Send text as it arrives, at most `limit` bytes. Raises ApiError only before anything is sent."""
        first = asyncio.ensure_future(_next(chunks))
        response = _begun("text/plain")
        try:
            beginning: set[asyncio.Future[Any]] = {first, hung_up(request)}
            await asyncio.wait(beginning, timeout=_FIRST_OUTPUT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                first.result()
            await response.prepare(request)
            await self._run(request, _text(first, chunks, response, limit), None)
        finally:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await _close(chunks)
        await _finish(request, response, b"")
        return response

    async def upgraded(self, request: web.BaseRequest, work: Coroutine[object, object, None]) -> None:
        """Run an upgraded session until it is done, the client has left, or the server stops."""
        await self._run(request, work, None)

    async def _run(
        self, request: web.BaseRequest, work: Coroutine[object, object, None], seconds: float | None
    ) -> None:
        """Run the work until it is done, time is up, the client has left, or the server stops. Raises its errors."""
        pump = asyncio.ensure_future(work)
        waiting: set[asyncio.Future[None]] = {pump, hung_up(request)}
        timer = asyncio.ensure_future(self._clock.sleep(seconds)) if seconds is not None else None
        if timer is not None:
            waiting.add(timer)
        self._pumps.add(pump)
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._pumps.discard(pump)
            tasks = [task for task in (pump, timer) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not pump.cancelled():
            pump.result()


def hung_up(request: web.BaseRequest) -> asyncio.Future[None]:
    """Return a future that is done once the request's client is known to have left."""
    return cast("Connection", request.protocol).disconnected


def error_line(error: ApiError) -> bytes:
    return b'{"type":"ERROR","object":%b}\n' % encode(error.status)


async def single_line(request: web.BaseRequest, line: bytes) -> web.StreamResponse:
    """Send a stream of one line."""
    response = _begun("application/json")
    await response.prepare(request)
    await _finish(request, response, line)
    return response


def _begun(content_type: str) -> web.StreamResponse:
    return web.StreamResponse(headers={"Content-Type": content_type, "Cache-Control": "no-cache, private"})


async def _events(watch: Watch, render: Render, response: web.StreamResponse) -> None:
    async for batch in watch:
        await response.write(b"".join([render(event) for event in batch]))


async def _text(
    first: asyncio.Future[bytes | None], chunks: AsyncIterator[bytes], response: web.StreamResponse, limit: int | None
) -> None:
    chunk = await first
    while chunk is not None:
        await response.write(chunk if limit is None else chunk[:limit])
        if limit is not None:
            limit -= len(chunk)
            if limit <= 0:
                return
        chunk = await _next(chunks)


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)


async def _close(chunks: AsyncIterator[bytes]) -> None:
    """Close a generator: one that is left unfinished keeps its file open."""
    close = getattr(chunks, "aclose", None)
    if close is not None:
        await close()


async def _finish(request: web.BaseRequest, response: web.StreamResponse, last: bytes) -> None:
    if hung_up(request).done():
        return
    try:
        async with asyncio.timeout(_CLOSING_SECONDS):
            if last:
                await response.write(last)
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
