"""A real HTTP proxy (CONNECT) on a free port, which can be told to refuse, or to let connections die without a word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Tunnel:
    """`asked` are the heads of all requests; `refusal`, where there is one, is the answer to them."""

    refusal: bytes = b""
    asked: list[str] = field(default_factory=list)
    port: int = 0
    _cut: set[asyncio.StreamWriter] = field(default_factory=set)
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def lose_connections(self) -> None:
        """Those that are open now carry nothing any more, in neither direction; new ones work."""
        self._cut |= self._open

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head)
        method, target, _ = head.split("\r\n")[0].split()
        if self.refusal or method != "CONNECT":
            writer.write(self.refusal or b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()
            return
        host, _, port = target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        self._open.add(writer)
        try:
            await asyncio.gather(self._pass(reader, far_writer, writer), self._pass(far_reader, writer, writer))
        finally:
            self._open.discard(writer)
            for each in (writer, far_writer):
                each.transport.abort()

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, near: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                if near not in self._cut:
                    sink.write(data)
                    await sink.drain()
            if near not in self._cut:
                sink.write_eof()


@asynccontextmanager
async def tunnel() -> AsyncIterator[Tunnel]:
    made = Tunnel()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await made.serve(reader, writer)

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
