"""What a client may hold of the API server without asking for anything: seconds, and connections."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
import structlog

from tarragon.base.clock import SystemClock
from tarragon.localcluster.apiserver.http.connection import Limits
from tests.localcluster.apiserver.embedded import TOKEN, Embedded, embedded

SHORT = Limits(header_seconds=0.3, body_seconds=0.3)
VERSION = f"GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
WATCH = VERSION.replace(b"/version", b"/api/v1/pods?watch=1&allowWatchBookmarks=1")
BODY = (
    f"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{"
).encode()


class Line:
    """A client's connection, for what no client library would send."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def drip(self, letter: bytes) -> None:
        """The same byte again and again, until the server hangs up."""
        with suppress(ConnectionError):
            while not self._reader.at_eof():
                self._writer.write(letter)
                await self._writer.drain()
                await SystemClock().sleep(0.02)

    async def answer(self) -> bytes:
        """The head of the next answer and its body, of a length that is told beforehand."""
        head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), 60)
        length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        return head + await asyncio.wait_for(self._reader.readexactly(int(length.partition(b":")[2])), 60)

    async def head(self) -> bytes:
        return await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), 60)

    async def everything(self) -> bytes:
        """What comes until the server hangs up, with or without a goodbye. Raises TimeoutError when it doesn't."""
        try:
            return await asyncio.wait_for(self._reader.read(), 60)
        except ConnectionError:
            return b""

    async def close(self) -> None:
        self._writer.transport.abort()
        with suppress(OSError):
            await self._writer.wait_closed()


@asynccontextmanager
async def line_to(cluster: Embedded) -> AsyncIterator[Line]:
    port = int(cluster.url.rpartition(":")[2])
    trust = ssl.create_default_context(cadata=cluster.ca.decode())
    line = Line(*await asyncio.open_connection("127.0.0.1", port, ssl=trust))
    try:
        yield line
    finally:
        await line.close()


@asynccontextmanager
async def plain_line_to(cluster: Embedded) -> AsyncIterator[Line]:
    """Without TLS."""
    line = Line(*await asyncio.open_connection("127.0.0.1", int(cluster.url.rpartition(":")[2])))
    try:
        yield line
    finally:
        await line.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with embedded(tmp_path, limits=SHORT) as running:
        yield running


async def test_a_connection_without_a_tls_handshake_is_closed(cluster: Embedded) -> None:
    async with plain_line_to(cluster) as line:
        assert await line.everything() == b""


async def test_a_connection_with_half_a_tls_handshake_is_closed(cluster: Embedded) -> None:
    async with plain_line_to(cluster) as line:
        line.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")

        assert await line.everything() == b""


async def test_a_connection_without_a_request_is_closed(cluster: Embedded) -> None:
    async with line_to(cluster) as line:
        assert await line.everything() == b""


async def test_a_connection_whose_first_header_never_ends_is_closed(cluster: Embedded) -> None:
    async with line_to(cluster) as line:
        line.send(VERSION[:-2] + b"X-More: ")
        await line.drip(b"a")

        assert await line.everything() == b""


async def test_a_connection_whose_second_header_never_ends_is_closed(cluster: Embedded) -> None:
    async with line_to(cluster) as line:
        line.send(VERSION)
        assert (await line.answer()).startswith(b"HTTP/1.1 200")
        line.send(b"GET /")
        await line.drip(b"a")

        assert await line.everything() == b""


async def test_a_request_whose_body_never_ends_is_a_timeout(cluster: Embedded) -> None:
    async with line_to(cluster) as line:
        line.send(BODY)
        await line.drip(b" ")

        head, _, body = (await line.everything()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 504")
        assert json.loads(body)["reason"] == "Timeout"


async def test_a_request_whose_body_stops_is_a_timeout(cluster: Embedded) -> None:
    async with line_to(cluster) as line:
        line.send(BODY)

        assert (await line.everything()).startswith(b"HTTP/1.1 504")


async def test_a_client_that_has_asked_may_be_idle_for_longer(cluster: Embedded) -> None:
    async with line_to(cluster) as line, line_to(cluster) as silent:
        line.send(VERSION)
        await line.answer()
        assert await silent.everything() == b""
        async with line_to(cluster) as later:
            assert await later.everything() == b""

        line.send(VERSION)
        assert (await line.answer()).startswith(b"HTTP/1.1 200")


async def test_a_watch_outlives_all_bounds(cluster: Embedded) -> None:
    async with line_to(cluster) as watching, line_to(cluster) as silent:
        watching.send(WATCH)
        await watching.head()
        assert await silent.everything() == b""
        assert cluster.server.open_streams == 1

        await cluster.server.stop()
        assert b"BOOKMARK" in await watching.everything()


async def test_beyond_the_bound_of_connections_a_client_waits_for_another_to_leave(tmp_path: Path) -> None:
    async with embedded(tmp_path, limits=Limits(connections=2)) as cluster:
        with structlog.testing.capture_logs() as logs:
            async with line_to(cluster) as first, line_to(cluster) as second:
                for line in (first, second):
                    line.send(VERSION)
                    await line.answer()
                third = asyncio.create_task(version_of(cluster))
                await until_logged(logs, "the limit of connections is reached")
                assert not third.done()

            assert (await third).startswith(b"HTTP/1.1 200")


async def test_the_server_goes_on_after_the_process_had_no_descriptor_left(tmp_path: Path) -> None:
    async with embedded(tmp_path) as cluster:
        port = int(cluster.url.rpartition(":")[2])
        with socket.socket() as client, structlog.testing.capture_logs() as logs:
            client.setblocking(False)
            with no_more_descriptors():
                await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
                await until_logged(logs, "no connection can be accepted")

        assert (await version_of(cluster)).startswith(b"HTTP/1.1 200")


async def version_of(cluster: Embedded) -> bytes:
    async with line_to(cluster) as line:
        line.send(VERSION)
        return await line.answer()


async def until_logged(logs: list[structlog.typing.EventDict], event: str) -> None:
    while all(entry["event"] != event for entry in logs):
        await SystemClock().sleep(0.005)


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
