from __future__ import annotations

import asyncio
import random
import socket
import ssl
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tarragon.base.clock import SystemClock
from tarragon.client.http import sockets
from tarragon.client.http.client import HttpClient
from tarragon.client.http.transport import RestConfig
from tarragon.kube.core import PODS
from tarragon.localcluster.daemon.certificates import ensure_certificates
from tarragon.localcluster.home.home import Home
from tests.localcluster.apiserver.scripted_server import says, serving


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other names for these options")
async def test_the_connections_of_a_client_notice_a_dead_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []
    connecting = sockets.create_socket

    def remembered(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
        made.append(connecting(address))
        return made[-1]

    monkeypatch.setattr(sockets, "create_socket", remembered)
    empty = {"metadata": {"resourceVersion": "1"}, "items": []}
    async with serving(says(empty)) as script, HttpClient(RestConfig(url=script.url), random.Random(1)) as http:
        await http.list(PODS)
        (used,) = made

        assert used.getpeername()[1] == int(script.url.rpartition(":")[2])
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


@asynccontextmanager
async def silent_over_tls(folder: Path) -> AsyncIterator[tuple[str, bytes, asyncio.Event]]:
    """A server that reads one request and then does nothing more; set when it has read it."""
    files = ensure_certificates(Home(folder), SystemClock().now())
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trust.load_cert_chain(files.chain, files.key)
    loop, is_asked, over = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def serve() -> None:
        with trust.wrap_socket(listening.accept()[0], server_side=True) as connection:
            connection.recv(1)
            loop.call_soon_threadsafe(is_asked.set)
            over.wait()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.ensure_future(asyncio.to_thread(serve))
        try:
            yield f"https://127.0.0.1:{listening.getsockname()[1]}", files.authority.read_bytes(), is_asked
        finally:
            over.set()
            await serving


async def test_a_call_that_is_given_up_leaves_no_connection_although_the_other_end_takes_no_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under TLS both ends say that they go; a server that is frozen says nothing."""
    made: list[socket.socket] = []
    connecting = sockets.create_socket

    def remembered(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
        made.append(connecting(address))
        return made[-1]

    monkeypatch.setattr(sockets, "create_socket", remembered)
    async with silent_over_tls(tmp_path) as (url, authority, is_asked):
        http = HttpClient(RestConfig(url=url, ca_data=authority), random.Random(1))
        call = asyncio.ensure_future(http.list(PODS))
        await is_asked.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert [each.fileno() >= 0 for each in made] == [True]

        await http.close()

        assert [each.fileno() for each in made] == [-1]
