"""The WebSocket subprotocols of Kubernetes: streams as numbered channels, the number first in each message."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import WSMsgType, web

from tarragon.localcluster.apiserver.http.wires import LARGEST_MESSAGE

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
CLOSING_SECONDS = 2.0
"""How long a client is waited for that does not say farewell."""
CLOSE = 255
"""Of v5: the channel that follows says nothing more."""


@dataclass(frozen=True, slots=True)
class Subprotocol:
    """`is_text`: in base64, the channel's number as a digit before it. `has_status`: an end is told as a Status."""

    name: str
    is_text: bool = False
    has_status: bool = True
    has_close: bool = False


OFFERED = (
    Subprotocol("v5.channel.k8s.io", has_close=True),
    Subprotocol("v4.channel.k8s.io"),
    Subprotocol("v4.base64.channel.k8s.io", is_text=True),
    Subprotocol("channel.k8s.io", has_status=False),
    Subprotocol("base64.channel.k8s.io", is_text=True, has_status=False),
)
NONE_ASKED = Subprotocol("", has_status=False)


def encoded(protocol: Subprotocol, channel: int, data: bytes) -> bytes | str:
    """A message: bytes are to be sent as binary, a str as text."""
    if protocol.is_text:
        return f"{channel}{base64.b64encode(data).decode()}"
    return bytes((channel,)) + data


def decoded(protocol: Subprotocol, message: bytes | str) -> tuple[int, bytes] | None:
    """Channel and data; None for what means nothing."""
    raw = message.encode() if isinstance(message, str) else message
    if not raw:
        return None
    if not protocol.is_text:
        return raw[0], raw[1:]
    try:
        return raw[0] - ord("0"), base64.b64decode(raw[1:], validate=True)
    except binascii.Error:
        return None


class Channels:
    """One WebSocket, its messages taken apart."""

    def __init__(self, socket: web.WebSocketResponse, protocol: Subprotocol) -> None:
        self.socket = socket
        self.protocol = protocol
        self.answered = asyncio.Event()
        """The client has answered a ping."""

    @classmethod
    async def open(cls, request: web.BaseRequest, offered: Sequence[Subprotocol] = OFFERED) -> Channels:
        """Whoever names none of these protocols gets none, and the oldest form."""
        by_name = {protocol.name: protocol for protocol in offered}
        socket = web.WebSocketResponse(
            protocols=tuple(by_name),
            max_msg_size=LARGEST_MESSAGE,
            timeout=CLOSING_SECONDS,
            autoping=False,
            compress=False,  # as a real server: a few bytes must not become a great message
        )
        await socket.prepare(request)
        return cls(socket, by_name.get(socket.ws_protocol or "", NONE_ASKED))

    async def receive(self) -> tuple[int, bytes] | None:
        """None when the client has gone."""
        while True:
            message = await self.socket.receive()
            if message.type is WSMsgType.PING:
                await self.socket.pong(message.data)
            elif message.type is WSMsgType.PONG:
                self.answered.set()
            elif message.type not in {WSMsgType.BINARY, WSMsgType.TEXT}:
                return None
            elif (said := decoded(self.protocol, message.data)) is not None:
                return said

    async def send(self, channel: int, data: bytes) -> None:
        message = encoded(self.protocol, channel, data)
        if isinstance(message, str):
            await self.socket.send_str(message)
        else:
            await self.socket.send_bytes(message)

    async def close(self) -> None:
        await self.socket.close()
