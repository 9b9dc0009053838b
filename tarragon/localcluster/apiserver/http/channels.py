"""Kubernetes' WebSocket subprotocols: streams are numbered channels, and each message begins with the number."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import WSMsgType, web

from tarragon.localcluster.apiserver.http.byte_streams import LARGEST_MESSAGE

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
CLOSING_SECONDS = 2.0
"""How long to wait for the client's side of the closing handshake."""
CLOSE = 255
"""The signal of v5 that closes the channel whose number follows."""


@dataclass(frozen=True, slots=True)
class Subprotocol:
    """One subprotocol. `is_text`: base64 after the channel's digit. `has_status`: streams end with a Status."""

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
    """Return a message: bytes for a binary message, a str for a text message."""
    if protocol.is_text:
        return f"{channel}{base64.b64encode(data).decode()}"
    return bytes((channel,)) + data


def decoded(protocol: Subprotocol, message: bytes | str) -> tuple[int, bytes] | None:
    """Return channel and data; None for a message that cannot be decoded."""
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
    """A WebSocket whose messages are split into channel and data."""

    def __init__(self, socket: web.WebSocketResponse, protocol: Subprotocol) -> None:
        self.socket = socket
        self.protocol = protocol
        self.answered = asyncio.Event()
        """Set once the client has answered a ping."""

    @classmethod
    async def open(cls, request: web.BaseRequest, offered: Sequence[Subprotocol] = OFFERED) -> Channels:
        """Accept the WebSocket. A client that offers none of the subprotocols gets the oldest form."""
        by_name = {protocol.name: protocol for protocol in offered}
        socket = web.WebSocketResponse(
            protocols=tuple(by_name),
            max_msg_size=LARGEST_MESSAGE,
            timeout=CLOSING_SECONDS,
            autoping=False,
            compress=False,  # as in kube-apiserver: a small message must not decompress into a huge one
        )
        await socket.prepare(request)
        return cls(socket, by_name.get(socket.ws_protocol or "", NONE_ASKED))

    async def receive(self) -> tuple[int, bytes] | None:
        """Return channel and data of the next message; None when the client has left."""
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
