"""Sockets that notice soon that the other end is gone: without a word from it, the system waits for hours."""

from __future__ import annotations

import socket

_QUIET_SECONDS = 30
_PROBE_SECONDS = 10
_PROBES = 3
_UNTAKEN_SECONDS = 30


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
