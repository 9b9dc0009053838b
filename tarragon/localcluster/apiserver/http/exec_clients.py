"""The client of an exec or attach session, over the channels of a WebSocket or over SPDY streams."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from tarragon.kube.codec import decode, encode
from tarragon.localcluster.apiserver.http import channels
from tarragon.localcluster.apiserver.http.byte_streams import ReceiveQueue
from tarragon.localcluster.apiserver.http.channels import Channels
from tarragon.localcluster.apiserver.http.spdy.session import Session, Stream, Wire

OPEN_SECONDS = 30.0
"""How long a client may take to open the streams that its request announces."""
GREETING_SECONDS = 2.0
FAREWELL_SECONDS = 5.0
"""How long a client may take to close the connection after the last message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedStreams:
    """The streams that an exec or attach requests. With a tty, stdout carries stderr too."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool


class Size(msgspec.Struct, frozen=True, rename="pascal"):
    """The size of a terminal window, in columns and rows."""

    width: int = 0
    height: int = 0


class SessionClient(Protocol):
    """A connected client. Its `async with` block is the session."""

    async def stdin(self) -> bytes:
        """Return the next input; empty at its end."""

    async def write(self, stream: int, data: bytes) -> None:
        """Send output to STDOUT or STDERR. Raises ConnectionError."""

    async def size(self) -> Size | None:
        """Return the next size of the window; None when no more will come."""

    async def disconnected(self) -> None:
        """Return when the client has left."""

    async def finish(self, status: Mapping[str, Any]) -> None:
        """Send the final status of the session."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class WebSocketClient:
    """A client on WebSocket channels. One task receives all messages into a queue of input and one of sizes."""

    def __init__(self, line: Channels, wanted: RequestedStreams) -> None:
        self._line = line
        self._wanted = wanted
        self._stdin: ReceiveQueue = ReceiveQueue()
        self._sizes: asyncio.Queue[Size | None] = asyncio.Queue()
        self._has_ended_stdin = False
        self._receiving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._receiving = asyncio.create_task(self._receive())
        if self._line.protocol.has_close:
            await self._greet()
        else:
            # Some clients wait for an empty message as the sign that the session has begun.
            await self._line.send(channels.STDOUT if self._wanted.stdout else channels.ERROR, b"")
        return self

    async def _greet(self) -> None:
        """Wait for a pong: client-go reads nothing before its streams exist, and drops output that comes earlier."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            await self._line.socket.ping()
            async with asyncio.timeout(GREETING_SECONDS):
                await self._line.answered.wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.gather(self._receiving, return_exceptions=True)
        with contextlib.suppress(ConnectionError):
            await self._line.close()

    async def _receive(self) -> None:
        while (message := await self._line.receive()) is not None:
            channel, data = message
            if channel == channels.STDIN and data:
                await self._stdin.put(data)
            elif channel == channels.RESIZE:
                self._sizes.put_nowait(_size(data))
            elif channel == channels.CLOSE and self._line.protocol.has_close and data == bytes((channels.STDIN,)):
                await self._stdin.put(b"")
        await self._stdin.put(b"")
        self._sizes.put_nowait(None)

    async def stdin(self) -> bytes:
        if self._has_ended_stdin:
            return b""
        data = await self._stdin.get()
        self._has_ended_stdin = not data
        return data

    async def disconnected(self) -> None:
        if self._receiving is not None:
            await asyncio.wait([self._receiving])

    async def write(self, stream: int, data: bytes) -> None:
        await self._line.send(stream, data)

    async def size(self) -> Size | None:
        return await self._sizes.get()

    async def finish(self, status: Mapping[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):
            if self._line.protocol.has_status:
                await self._line.send(channels.ERROR, encode(status))
            elif status["status"] != "Success":
                await self._line.send(channels.ERROR, str(status["message"]).encode())


class SpdyClient:
    """A client that opens one SPDY stream each for stdin, stdout, stderr, errors and sizes, named in a header."""

    def __init__(self, wire: Wire, wanted: RequestedStreams) -> None:
        self._session = Session(wire)
        self._wanted = wanted
        self._streams: dict[str, Stream] = {}

    async def __aenter__(self) -> Self:
        """Raises ConnectionError when the client does not open the streams that it announced."""
        await self._session.__aenter__()
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                while self._expected() - self._streams.keys():
                    await self._take_in()
        except BaseException:
            await self._session.__aexit__(None, None, None)
            raise
        return self

    async def _take_in(self) -> None:
        stream = await self._session.accept()
        if stream is None:
            raise ConnectionResetError("the client has left")
        self._streams[stream.headers.get("streamtype", "")] = stream

    def _expected(self) -> set[str]:
        wanted = self._wanted
        requested = {
            "stdin": wanted.stdin,
            "stdout": wanted.stdout,
            "stderr": wanted.stderr and not wanted.tty,
            "resize": wanted.tty,
        }
        return {"error"} | {name for name, is_requested in requested.items() if is_requested}

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):
            for stream in self._streams.values():
                await stream.close()
            # client-go drops unread output when the connection closes, so let it close the connection itself.
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._session.go_away()
        await self._session.__aexit__(kind, error, trace)

    async def stdin(self) -> bytes:
        stream = self._streams.get("stdin")
        return await stream.read() if stream else b""

    async def disconnected(self) -> None:
        await self._session.ended()

    async def write(self, stream: int, data: bytes) -> None:
        target = self._streams.get("stderr" if stream == channels.STDERR else "stdout")
        if target:
            await target.write(data)

    async def size(self) -> Size | None:
        """Sizes are concatenated JSON objects; of several received together only the last matters."""
        stream = self._streams.get("resize")
        while stream and (data := await stream.read()):
            sizes = [part for part in data.replace(b"}", b"}\n").splitlines() if part.strip()]
            if sizes:
                return _size(sizes[-1])
        return None

    async def finish(self, status: Mapping[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):
            await self._streams["error"].write(encode(status))


def _size(data: bytes) -> Size:
    try:
        return decode(data, Size)
    except msgspec.MsgspecError:
        return Size()
