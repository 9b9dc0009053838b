"""The server's side of a SPDY connection, whose streams the client opens.

There is no flow control per stream: client-go has none, and would never reopen a closed window. Data is acknowledged
nevertheless, for clients that have it. A stream that is not read blocks the connection once BUFFERED bytes are waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from tarragon.localcluster.apiserver.http.spdy.frames import (
    Data,
    Decoder,
    Encoder,
    Frame,
    GoAway,
    Ping,
    ProtocolError,
    Reset,
    SynReply,
    SynStream,
    WindowUpdate,
)

BUFFERED = 4 * 2**20
LARGEST_WRITE = 32 * 1024
CANCEL = 5
REFUSED_STREAM = 3
MOST_STREAMS = 1000
AT_ONCE = 256
"""The number of frames after which other tasks run: most frames are handled without waiting."""


class Wire(Protocol):
    """A byte stream to the client and back."""

    async def read(self) -> bytes:
        """Return the next data; empty at the end."""

    async def write(self, data: bytes) -> None:
        """Send data. It starts immediately, so that frames keep the order of the calls. Raises ConnectionError."""


class Stream:
    """A stream that the client has opened, with its headers."""

    def __init__(self, session: Session, number: int, headers: Mapping[str, str]) -> None:
        self.number = number
        self.headers = headers
        self._session = session
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._changed = asyncio.Condition()
        self._is_complete = False
        self._is_closed = False

    async def read(self) -> bytes:
        """Return the next data; empty when the client has finished or left."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._chunks or self._is_complete)
            if not self._chunks:
                return b""
            data = b"".join(self._chunks)
            self._chunks.clear()
            self._size = 0
            self._changed.notify_all()
        with contextlib.suppress(ConnectionError):
            await self._session.send(WindowUpdate(stream=self.number, delta=len(data)))
        return data

    async def write(self, data: bytes) -> None:
        """Send data. Raises ConnectionError when the stream is closed."""
        for start in range(0, len(data), LARGEST_WRITE):
            if self._is_closed:
                raise ConnectionResetError("the stream is closed")
            await self._session.send(Data(stream=self.number, data=data[start : start + LARGEST_WRITE]))

    async def close(self) -> None:
        """Close our half of the stream; the client may still send."""
        if not self._is_closed:
            self._is_closed = True
            await self._session.send(Data(stream=self.number, data=b"", fin=True))
            self._session.forget_if_over(self)

    async def reset(self) -> None:
        if not self.is_over:
            self._is_closed = True
            await self.end()
            await self._session.send(Reset(stream=self.number, status=CANCEL))
            self._session.forget_if_over(self)

    @property
    def is_over(self) -> bool:
        return self._is_closed and self._is_complete

    async def take(self, data: bytes) -> None:
        """Receive data from the client."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._size < BUFFERED or self._is_complete)
            if data and not self._is_complete:
                self._chunks.append(data)
                self._size += len(data)
                self._changed.notify_all()

    async def end(self) -> None:
        """Note that the client has closed its half."""
        async with self._changed:
            self._is_complete = True
            self._changed.notify_all()

    async def end_both(self) -> None:
        """Note that the client has reset the stream, or left."""
        self._is_closed = True
        await self.end()


class Session:
    """A connection. It receives frames for as long as its `async with` block lasts."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._encoder = Encoder()
        self._streams: dict[int, Stream] = {}
        self._new: dict[int, Stream] = {}
        self._is_over = False
        self._changed = asyncio.Event()
        self._last = 0
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def go_away(self) -> None:
        """Send GOAWAY, and return when the client has closed the connection."""
        await self.send(GoAway(last=self._last))
        await self.ended()

    async def accept(self) -> Stream | None:
        """Accept and return the next stream that the client opens; None when the client has left."""
        while not self._new and not self._is_over:
            self._changed.clear()
            await self._changed.wait()
        if not self._new:
            return None
        stream = self._new.pop(next(iter(self._new)))
        await self.send(SynReply(stream=stream.number, headers={}))
        return stream

    async def ended(self) -> None:
        """Return when the client has left."""
        if self._reading is not None:
            await asyncio.wait([self._reading])

    async def send(self, frame: Frame) -> None:
        await self._wire.write(self._encoder.encode(frame))

    def forget_if_over(self, stream: Stream) -> None:
        if stream.is_over:
            self._streams.pop(stream.number, None)

    async def _read(self) -> None:
        decoder = Decoder()
        try:
            while data := await self._wire.read():
                for number, frame in enumerate(decoder.feed(data)):
                    if isinstance(frame, GoAway):
                        return
                    await self._take(frame)
                    if number % AT_ONCE == AT_ONCE - 1:
                        await asyncio.sleep(0)  # noqa: TID251 - one turn of the event loop, not a wait
        except (ConnectionError, ProtocolError):
            return
        finally:
            self._is_over = True
            self._changed.set()
            for stream in list(self._streams.values()):
                await stream.end_both()

    async def _take(self, frame: Frame) -> None:
        match frame:
            case SynStream():
                await self._open(frame)
            case Data(stream=number, data=data, fin=fin) if number in self._streams:
                stream = self._streams[number]
                await stream.take(data)
                await self._end_if(stream, fin=fin)
            case Reset(stream=number) if number in self._streams:
                self._new.pop(number, None)
                await self._streams.pop(number).end_both()
            case Ping(number=number) if number % 2:  # ours would be even, and we send none
                await self.send(frame)
            case _:
                pass

    async def _open(self, frame: SynStream) -> None:
        if frame.stream <= self._last or frame.stream % 2 == 0 or len(self._streams) >= MOST_STREAMS:
            await self.send(Reset(stream=frame.stream, status=REFUSED_STREAM))
            return
        self._last = frame.stream
        stream = self._streams[frame.stream] = Stream(self, frame.stream, frame.headers)
        self._new[stream.number] = stream
        self._changed.set()
        await self._end_if(stream, fin=frame.fin)

    async def _end_if(self, stream: Stream, *, fin: bool) -> None:
        if fin:
            await stream.end()
            self.forget_if_over(stream)
