"""The server's side of one SPDY connection: streams that the client opens, over any pair of byte streams.

There is no flow control between streams: client-go has none, and would never open a window that had closed. What is
read here is acknowledged all the same, for those who do. A stream that nobody reads holds the connection up when
BUFFERED bytes of it have gathered.
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
"""Frames after which others have their turn: most are taken without ever waiting."""


class Wire(Protocol):
    """Bytes to and from the other side."""

    async def read(self) -> bytes:
        """Empty at the end."""

    async def write(self, data: bytes) -> None:
        """Begins at once, so that frames go out in the order of the calls. Raises ConnectionError."""


class Stream:
    """One that the client has opened, with its headers."""

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
        """Empty when the client has said everything, or has gone."""
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
        """Raises ConnectionError when nobody listens any more."""
        for start in range(0, len(data), LARGEST_WRITE):
            if self._is_closed:
                raise ConnectionResetError("the stream is closed")
            await self._session.send(Data(stream=self.number, data=data[start : start + LARGEST_WRITE]))

    async def close(self) -> None:
        """There is nothing more to say; what the client says is still heard."""
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
        """From the client."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._size < BUFFERED or self._is_complete)
            if data and not self._is_complete:
                self._chunks.append(data)
                self._size += len(data)
                self._changed.notify_all()

    async def end(self) -> None:
        """The client says nothing more."""
        async with self._changed:
            self._is_complete = True
            self._changed.notify_all()

    async def end_both(self) -> None:
        """The client has reset the stream, or is gone."""
        self._is_closed = True
        await self.end()


class Session:
    """Reads as long as the `async with` lasts."""

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

    async def farewell(self) -> None:
        """Say that nothing more will come, and return when the client has hung up."""
        await self.send(GoAway(last=self._last))
        await self.ended()

    async def accept(self) -> Stream | None:
        """The next stream that the client opens; None when it is gone. The client is told that it is welcome."""
        while not self._new and not self._is_over:
            self._changed.clear()
            await self._changed.wait()
        if not self._new:
            return None
        stream = self._new.pop(next(iter(self._new)))
        await self.send(SynReply(stream=stream.number, headers={}))
        return stream

    async def ended(self) -> None:
        """Return when the client has gone."""
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
