"""Sockets that notice soon that the other end is gone: without a word from it, the system waits for hours."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from weakref import WeakSet

_QUIET_SECONDS = 30
_PROBE_SECONDS = 10
_PROBES = 3
_UNTAKEN_SECONDS = 30
_TURNS = 100
"""Of the event loop, far more than a transport needs to see that its connection is over."""


class Sockets:
    """Those of one client.

    A call that is cancelled leaves its connection to TLS, which takes leave of the other end for as long as that takes.
    aiohttp forgets it at that moment, so `close` of a session does not end it.
    """

    def __init__(self) -> None:
        self._made: WeakSet[socket.socket] = WeakSet()

    def connecting(self, address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
        made = connecting(address)
        self._made.add(made)
        return made

    async def end(self) -> None:
        """All that are still open, and returns when they are closed."""
        for each in list(self._made):
            with suppress(OSError):  # closed, or never connected
                each.shutdown(socket.SHUT_RDWR)
        for _ in range(_TURNS):
            if all(each.fileno() < 0 for each in list(self._made)):
                return
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the event loop, not a wait


def connecting(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
    """One that is not connected yet, for a row of getaddrinfo. A dead peer ends it within about a minute.

    What is sent and not taken ends it, too: a request that went into nothing fails before its answer is due.
    """
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not every system has these; where they are missing, the deadlines of the requests themselves remain.
    for name, value in (
        ("TCP_KEEPIDLE", _QUIET_SECONDS),
        ("TCP_KEEPINTVL", _PROBE_SECONDS),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", _UNTAKEN_SECONDS * 1000),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
