"""Sockets with keep-alive that detect a dead peer within about a minute; by default that takes hours."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from weakref import WeakSet

_KEEPALIVE_IDLE_SECONDS = 30
_KEEPALIVE_INTERVAL_SECONDS = 10
_KEEPALIVE_PROBES = 3
_UNACKNOWLEDGED_SECONDS = 30
_LOOP_ITERATIONS = 100
"""Iterations of the event loop, far more than a transport needs to notice that its connection is closed."""


class SocketRegistry:
    """The sockets of one client, so that all of them can be closed.

    After a cancelled call, TLS shuts its connection down in the background, for as long as that takes. aiohttp no
    longer knows that connection, so closing the session does not close it.
    """

    def __init__(self) -> None:
        self._sockets: WeakSet[socket.socket] = WeakSet()

    def create_socket(self, address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
        created = create_socket(address)
        self._sockets.add(created)
        return created

    async def close_all(self) -> None:
        """Shut down all open sockets and wait until they are closed."""
        for each in list(self._sockets):
            with suppress(OSError):  # closed, or never connected
                each.shutdown(socket.SHUT_RDWR)
        for _ in range(_LOOP_ITERATIONS):
            if all(each.fileno() < 0 for each in list(self._sockets)):
                return
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the event loop, not a wait


def create_socket(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
    """Create an unconnected socket for an entry of getaddrinfo. It closes about a minute after its peer has died.

    Unacknowledged data closes it too, so that a request to a dead peer fails before its response is due.
    """
    family, kind, protocol, _, _ = address
    created = socket.socket(family, kind, protocol)
    created.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not every system has these options. Without them, only the timeouts of the requests apply.
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", _UNACKNOWLEDGED_SECONDS * 1000),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            created.setsockopt(socket.IPPROTO_TCP, option, value)
    return created
