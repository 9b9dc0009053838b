from __future__ import annotations

import random
import socket
import sys

import pytest

from tarragon.cluster import sockets
from tarragon.cluster.http import Http
from tarragon.cluster.transport import Server
from tarragon.kube.core import PODS
from tests.localcluster_http.scripted_server import says, serving


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other names for these options")
async def test_the_connections_of_a_client_notice_a_dead_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []
    connecting = sockets.connecting

    def remembered(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
        made.append(connecting(address))
        return made[-1]

    monkeypatch.setattr(sockets, "connecting", remembered)
    empty = {"metadata": {"resourceVersion": "1"}, "items": []}
    async with serving(says(empty)) as script, Http(Server(url=script.url), random.Random(1)) as http:
        await http.list(PODS)
        (used,) = made

        assert used.getpeername()[1] == int(script.url.rpartition(":")[2])
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
