"""Pipes and terminals in asyncio: what is read is asked for, what is written waits until it is taken."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios

READ = 64 * 1024
LAST_WORDS_SECONDS = 0.1
"""A terminal passes on what was written to it a moment after whoever wrote it may have ended."""


class Output:
    """What a process says. It ends with the process that it was made for, even where others hold the other end."""

    def __init__(self, descriptor: int, ended: asyncio.Event) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._ended = ended

    async def read(self) -> bytes:
        """Empty at the end. It waits in any case, so that others have their turn while much is said."""
        lingering = os.isatty(self._descriptor)
        while True:
            is_over = self._ended.is_set()
            if is_over:
                await _ready_within(self._descriptor, LAST_WORDS_SECONDS if lingering else 0)
            else:
                await self._more_or_over()
            try:
                return os.read(self._descriptor, READ)
            except BlockingIOError:
                if is_over:
                    return b""
            except OSError:  # a terminal that nobody has open any more
                return b""

    async def _more_or_over(self) -> None:
        more, over = asyncio.ensure_future(readable(self._descriptor)), asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((more, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            more.cancel()
            over.cancel()
            await asyncio.gather(more, over, return_exceptions=True)

    def close(self) -> None:
        os.close(self._descriptor)


class Input:
    """What a process is told."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    async def write(self, data: bytes) -> bool:
        """False when nobody reads it any more."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:
                await _writable(self._descriptor)
            except OSError:
                return False
        return True

    def resize(self, width: int, height: int) -> None:
        """In columns and rows; for terminals only."""
        size = struct.pack("HHHH", height & 0xFFFF, width & 0xFFFF, 0, 0)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, size)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


async def _ready_within(descriptor: int, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await readable(descriptor)


async def readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(descriptor, _done, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


async def _writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(descriptor, _done, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


def _done(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
