"""Bidirectional byte streams: an upgraded HTTP connection, or the messages of a WebSocket."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping

from aiohttp import WSMsgType, web

BUFFERED = 1 * 2**20
LARGEST_MESSAGE = 64 * 2**20
_GONE = "the client has left"


class ReceiveQueue(asyncio.Queue[bytes]):
    """A queue of data received from a client. `put` waits while it holds BUFFERED bytes or more."""

    def __init__(self) -> None:
        self._bytes = 0
        super().__init__()

    def full(self) -> bool:
        return self._bytes >= BUFFERED

    def _put(self, item: bytes) -> None:
        self._bytes += len(item)
        super()._put(item)

    def _get(self) -> bytes:
        item = super()._get()
        self._bytes -= len(item)
        return item


class Switched(web.StreamResponse):
    """A response 101: what is written after the headers is neither counted nor chunked."""

    _length_check = False

    def __init__(self, protocol: str, headers: Mapping[str, str]) -> None:
        super().__init__(status=101, headers={"Connection": "Upgrade", "Upgrade": protocol, **headers})
        self.force_close()


class Upgraded:
    """A connection after its upgrade. aiohttp passes incoming data to it, as to a WebSocket's parser."""

    def __init__(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        self._request = request
        self._response = response
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._is_paused = False
        self._is_over = False
        self._changed = asyncio.Event()

    @classmethod
    async def switch(cls, request: web.BaseRequest, protocol: str, headers: Mapping[str, str]) -> Upgraded:
        response = Switched(protocol, headers)
        wire = cls(request, response)
        request.protocol.set_parser(wire)  # type: ignore[arg-type]
        request.protocol.keep_alive(False)
        await response.prepare(request)
        return wire

    @property
    def response(self) -> web.StreamResponse:
        return self._response

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self._chunks.append(data)
        self._size += len(data)
        transport = self._request.transport
        if self._size > BUFFERED and not self._is_paused and isinstance(transport, asyncio.ReadTransport):
            self._is_paused = True
            transport.pause_reading()
        self._changed.set()
        return False, b""

    def feed_eof(self) -> None:
        self._is_over = True
        self._changed.set()

    async def read(self) -> bytes:
        while not self._chunks and not self._is_over:
            self._changed.clear()
            await self._changed.wait()
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        transport = self._request.transport
        if self._is_paused and isinstance(transport, asyncio.ReadTransport):
            self._is_paused = False
            transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        if self._is_over or self._request.transport is None or self._request.transport.is_closing():
            raise ConnectionResetError(_GONE)
        await self._response.write(data)


class Tunnel:
    """A byte stream in the binary messages of a WebSocket."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        while True:
            message = await self._socket.receive()
            if message.type is WSMsgType.BINARY and message.data:
                return bytes(message.data)
            if message.type not in {WSMsgType.BINARY, WSMsgType.TEXT}:
                return b""

    async def write(self, data: bytes) -> None:
        if self._socket.closed:
            raise ConnectionResetError(_GONE)
        await self._socket.send_bytes(data)
