from __future__ import annotations

import asyncio
import socket

import pytest

from tarragon.localcluster.services.forwarding import HostPort, TcpForwarder

TURNS = 8
"""Turns of the event loop: more than `open` needs."""


@pytest.mark.parametrize("turns", range(TURNS))
async def test_a_cancelled_open_leaves_no_listening_socket(turns: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = HostPort("127.0.0.1", free.getsockname()[1])
    opening = asyncio.create_task(TcpForwarder.open(place, lambda: ()))
    for _ in range(turns):
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the event loop, not a wait
    opening.cancel()
    (opened,) = await asyncio.gather(opening, return_exceptions=True)
    if isinstance(opened, TcpForwarder):
        await opened.close()

    with pytest.raises(OSError):  # noqa: PT011 - refused
        await asyncio.open_connection(place.host, place.port)
