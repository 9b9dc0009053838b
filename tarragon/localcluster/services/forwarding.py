"""Forwarding of TCP connections from the address of a Service to one of its pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

_CHUNK = 64 * 1024
_DIAL_SECONDS = 5.0


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """An IP address and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


Backends = Callable[[], Sequence[HostPort]]
"""Returns the current backends for each new connection. The first one that accepts gets the connection."""


class TcpForwarder:
    """A listening socket, from `open` to `close`, which also closes the accepted connections."""

    def __init__(self, place: HostPort, backends: Backends) -> None:
        self.address = place
        self._backends = backends
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, place: HostPort, backends: Backends) -> TcpForwarder:
        """Start to listen. Raises OSError."""
        door = cls(place, backends)
        # If this task is cancelled while the server starts, the socket must be closed here.
        door._server = server = await asyncio.start_server(door._accept, place.host, place.port, start_serving=False)
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

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        self._connections.add(task)
        try:
            await self._forward(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # the client and the pod notice a broken connection themselves
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = await _connect(self._backends())
        if connection is None:
            return
        backend_reader, backend_writer = connection
        try:
            await asyncio.gather(_copy(reader, backend_writer), _copy(backend_reader, writer))
        finally:
            backend_writer.transport.abort()


async def accepts_connections(backends: Sequence[HostPort]) -> bool:
    """Whether one of the backends accepts connections."""
    connection = await _connect(backends)
    if connection is None:
        return False
    connection[1].transport.abort()
    return True


async def _connect(backends: Sequence[HostPort]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    for place in backends:
        with suppress(OSError):
            async with asyncio.timeout(_DIAL_SECONDS):
                return await asyncio.open_connection(place.host, place.port)
    return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy up to the end of the stream and half-close the target: the other direction may go on."""
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
