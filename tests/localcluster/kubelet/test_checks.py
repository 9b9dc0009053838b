"""Probes of ports with different kinds of servers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tarragon.base.clock import SystemClock
from tarragon.localcluster.daemon.certificates import ensure_certificates
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.kubelet.probes import checks
from tarragon.localcluster.kubelet.probes.checks import HttpRequest
from tarragon.localcluster.kubelet.probes.results import ProbeResult

WELL = ProbeResult(succeeded=True)


@asynccontextmanager
async def answering(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The port of a server that sends this reply to every request."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


def request(port: int, scheme: str = "http") -> HttpRequest:
    return HttpRequest(scheme=scheme, host="127.0.0.1", port=port, path="/x")


@pytest.mark.parametrize("status", [200, 204, 399])
async def test_2xx_and_3xx_responses_succeed(status: int) -> None:
    async with answering(f"HTTP/1.1 {status} Whatever\r\nContent-Length: 0\r\n\r\n".encode()) as port:
        assert await checks.probe_http(request(port)) == WELL


@pytest.mark.parametrize("status", [100, 199, 400, 404, 503])
async def test_other_status_codes_fail(status: int) -> None:
    async with answering(f"HTTP/1.1 {status} Whatever\r\n\r\n".encode()) as port:
        words = f"HTTP probe failed with statuscode: {status}"
        assert await checks.probe_http(request(port)) == ProbeResult(succeeded=False, output=words)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "EOF"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", 'malformed HTTP response "SSH-2.0-OpenSSH_9.2"'),
        (b"HTTP/1.1 200 OK\r\nHalf", "EOF"),
    ],
)
async def test_a_response_that_is_not_http_fails(answer: bytes, words: str) -> None:
    async with answering(answer) as port:
        assert await checks.probe_http(request(port)) == ProbeResult(
            succeeded=False, output=f'Get "http://127.0.0.1:{port}/x": {words}'
        )


async def test_certificates_are_not_verified(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.prepare()
    files = ensure_certificates(home, SystemClock().now())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files.chain, files.key)

    async with answering(b"HTTP/1.1 200 OK\r\n\r\n", tls) as port:
        assert await checks.probe_http(request(port, "https")) == WELL


async def test_the_connection_is_closed_without_waiting_for_the_server(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.prepare()
    files = ensure_certificates(home, SystemClock().now())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files.chain, files.key)
    is_over = threading.Event()

    def serve(listening: socket.socket) -> None:
        plain, _ = listening.accept()
        with tls.wrap_socket(plain, server_side=True) as connection:
            connection.recv(1)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            is_over.wait()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = asyncio.create_task(asyncio.to_thread(serve, listening))
        try:
            async with asyncio.timeout(60):
                assert await checks.probe_http(request(listening.getsockname()[1], "https")) == WELL
        finally:
            is_over.set()
            await server


@pytest.mark.parametrize("location", ["http://[", "http://127.0.0.1:99999/", "//127.0.0.1:http/"])
async def test_an_invalid_redirect_fails(location: str) -> None:
    async with answering(f"HTTP/1.1 302 Found\r\nLocation: {location}\r\n\r\n".encode()) as port:
        words = f'Get "http://127.0.0.1:{port}/x": failed to parse Location header "{location}"'
        assert await checks.probe_http(request(port)) == ProbeResult(succeeded=False, output=words)


async def test_endless_redirects_fail() -> None:
    async with answering(b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n") as port:
        found = await checks.probe_http(request(port))

    assert found.succeeded is False
    assert found.output.endswith("stopped after 10 redirects")


@pytest.mark.parametrize(
    "ask",
    [
        lambda port: checks.probe_tcp("127.0.0.1", port),
        lambda port: checks.probe_http(request(port)),
    ],
    ids=["tcp", "http"],
)
async def test_a_closed_port_is_reported_with_the_message_of_go(ask: Callable[[int], Awaitable[ProbeResult]]) -> None:
    async with answering(b"") as port:
        pass

    found = await ask(port)

    assert found.succeeded is False
    assert f"dial tcp 127.0.0.1:{port}: connect: connection refused" in found.output
