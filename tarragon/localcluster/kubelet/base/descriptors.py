"""Pipes and terminals in asyncio: readers pull, writers wait until the other end has taken the data."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios

READ_BYTES = 64 * 1024
TERMINAL_DRAIN_SECONDS = 0.1
"""How long to keep reading a terminal after its process ended: its output may arrive a moment later."""


class PipeReader:
    """The output of a process. It ends with that process, even while other processes hold the write end open."""

    def __init__(self, descriptor: int, ended: asyncio.Event) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._ended = ended

    async def read(self) -> bytes:
        """The next bytes, empty at the end. It always yields to the event loop, even while much output arrives."""
        is_terminal = os.isatty(self._descriptor)
        while True:
            has_ended = self._ended.is_set()
            if has_ended:
                await _ready_within(self._descriptor, TERMINAL_DRAIN_SECONDS if is_terminal else 0)
            else:
                await self._readable_or_ended()
            try:
                return os.read(self._descriptor, READ_BYTES)
            except BlockingIOError:
                if has_ended:
                    return b""
            except OSError:  # a terminal whose other end is closed
                return b""

    async def _readable_or_ended(self) -> None:
        data, ended = asyncio.ensure_future(wait_readable(self._descriptor)), asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((data, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            data.cancel()
            ended.cancel()
            await asyncio.gather(data, ended, return_exceptions=True)

    def close(self) -> None:
        os.close(self._descriptor)


class PipeWriter:
    """The input of a process."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    async def write(self, data: bytes) -> bool:
        """Write all data. False when the other end is closed."""
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
        """Set a terminal's window size, in columns and rows."""
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
            await wait_readable(descriptor)


async def wait_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(descriptor, _set_done, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


async def _writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(descriptor, _set_done, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


def _set_done(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
