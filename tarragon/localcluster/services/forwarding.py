"""Connections to a service's address, carried to where one of its pods really listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

_CHUNK = 64 * 1024
_DIAL_SECONDS = 5.0


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where one listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


Backends = Callable[[], Sequence[Place]]
"""Asked anew for each connection; the first one that takes it has it."""


class Door:
    """One listening socket. Made by `open`, ended by `close`, which ends its connections too."""

    def __init__(self, place: Place, backends: Backends) -> None:
        self.place = place
        self._backends = backends
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, place: Place, backends: Backends) -> Door:
        """Raises OSError."""
        door = cls(place, backends)
        # Whoever is cancelled while it begins to listen would leave a socket that nobody knows of.
        door._server = server = await asyncio.start_server(door._take, place.host, place.port, start_serving=False)
        try:
            await server.start_serving()
        except BaseException:
            server.close()
            raise
        return door

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        self._connections.add(task)
        try:
            await self._carry(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # a broken connection is its two ends' business
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await _dialled(self._backends())
        if there is None:
            return
        far_reader, far_writer = there
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            far_writer.transport.abort()


async def is_answered(backends: Sequence[Place]) -> bool:
    """Whether somebody listens at one of them."""
    there = await _dialled(backends)
    if there is None:
        return False
    there[1].transport.abort()
    return True


async def _dialled(backends: Sequence[Place]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    for place in backends:
        with suppress(OSError):
            async with asyncio.timeout(_DIAL_SECONDS):
                return await asyncio.open_connection(place.host, place.port)
    return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """To the end, which is passed on: each side may go on speaking when the other has nothing more to say."""
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
