"""Port-forward: connects each connection of a client to a port of a pod."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tarragon.localcluster.apiserver.http.byte_streams import ReceiveQueue
from tarragon.localcluster.apiserver.http.channels import Channels
from tarragon.localcluster.apiserver.http.spdy.session import Session, Stream, Wire
from tarragon.localcluster.kubelet.streaming.pod_access import PortNotOpen

READ = 64 * 1024
Dial = Callable[[int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
Take = Callable[[], Awaitable[bytes]]
Give = Callable[[bytes], Awaitable[None]]


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, take: Take, give: Give) -> None:
    """Copy both ways until the pod's side has ended. A client that has sent everything may still receive."""
    down = asyncio.create_task(_down(reader, give))
    up = asyncio.create_task(_up(writer, take))
    try:
        await down
        up.cancel()  # a server that has closed its connection reads nothing more
    finally:
        for task in (down, up):
            task.cancel()
        await asyncio.gather(down, up, return_exceptions=True)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _down(reader: asyncio.StreamReader, give: Give) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(READ):
            await give(data)


async def _up(writer: asyncio.StreamWriter, take: Take) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await take():
            writer.write(data)
            await writer.drain()
        writer.write_eof()


# ------------------------------------------------------------------------------------------------------------- by SPDY


async def forward_spdy(wire: Wire, dial: Dial) -> None:
    """Serve until the client leaves. Each connection is a `data` and an `error` stream with the same requestID."""
    half: dict[str, Stream] = {}
    async with Session(wire) as session, asyncio.TaskGroup() as connections:
        while (stream := await session.accept()) is not None:
            half = {name: waiting for name, waiting in half.items() if not waiting.is_over}
            request = stream.headers.get("requestid", "")
            other = half.pop(request, None)
            if other is None:
                half[request] = stream
                continue
            pair = {each.headers.get("streamtype", ""): each for each in (other, stream)}
            connections.create_task(_connection(pair, dial))


async def _connection(pair: dict[str, Stream], dial: Dial) -> None:
    data, error = pair.get("data"), pair.get("error")
    with contextlib.suppress(ConnectionError):
        if data is None or error is None:
            for stream in pair.values():
                await stream.reset()
            return
        try:
            reader, writer = await dial(_port(data))
        except PortNotOpen as refused:
            await error.write(str(refused).encode())
        else:
            await carry(reader, writer, data.read, data.write)
        await data.close()
        await error.close()


def _port(stream: Stream) -> int:
    said = stream.headers.get("port", "")
    if said.isdigit() and 0 < int(said) < 65536:  # noqa: PLR2004 - ports of TCP
        return int(said)
    raise PortNotOpen(f"{said!r} is not a port")


# ---------------------------------------------------------------------------------------------------------- by channels


@dataclass(slots=True)
class _Channel:
    """The two channels of the n-th port in the URL: data on 2n, errors on 2n+1."""

    number: int
    port: int
    heard: ReceiveQueue = field(default_factory=ReceiveQueue)


async def forward_channels(line: Channels, ports: Sequence[int], dial: Dial) -> None:
    """Serve one connection for each port. The first two bytes on both channels are the port's number."""
    asked = [_Channel(2 * index, port) for index, port in enumerate(ports)]
    for each in asked:
        for number in (each.number, each.number + 1):
            await line.send(number, struct.pack("<H", each.port))
    hearing = asyncio.create_task(_hear(line, asked))
    try:
        await asyncio.gather(*(_one(line, each, dial) for each in asked))
    finally:
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)
        with contextlib.suppress(ConnectionError):
            await line.close()


async def _hear(line: Channels, asked: Sequence[_Channel]) -> None:
    by_number = {each.number: each for each in asked}
    while (said := await line.receive()) is not None:
        channel, data = said
        if data and channel in by_number:
            await by_number[channel].heard.put(data)
    for each in asked:
        await each.heard.put(b"")


async def _one(line: Channels, channel: _Channel, dial: Dial) -> None:
    async def give(data: bytes) -> None:
        await line.send(channel.number, data)

    with contextlib.suppress(ConnectionError):
        try:
            reader, writer = await dial(channel.port)
        except PortNotOpen as refused:
            await line.send(channel.number + 1, str(refused).encode())
        else:
            await carry(reader, writer, channel.heard.get, give)
