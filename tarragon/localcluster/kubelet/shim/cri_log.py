"""What a container says, as lines of the CRI in a log of bounded size.

A part of the shim, of a file of its own: the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

CHUNK = 16 * 1024  # containerd cuts longer lines at this size, too
READ = 64 * 1024


class OutOfRoom(Exception):
    """Lines could not be written, all but the first `kept` of them."""

    def __init__(self, reason: str, *, kept: int) -> None:
        super().__init__(reason)
        self.kept = kept


class Log:
    """A file of CRI lines and the one before it, each within a limit. A full disk loses lines, it stops nobody."""

    def __init__(self, path: str, limit: int) -> None:
        self.path = path
        self.limit = limit
        self.lost = 0
        self.lost_in_all = 0
        self.reason = ""
        self.size = 0
        self.descriptor = -1
        self._stamped = (0, "")

    def create(self) -> None:
        """So that a container that says nothing has an empty log, not none."""
        with contextlib.suppress(OSError):
            self._turn()

    def stamp(self) -> bytes:
        now = time.time_ns()
        second, fraction = divmod(now, 1_000_000_000)
        if self._stamped[0] != second:
            self._stamped = (second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)))
        return f"{self._stamped[1]}.{fraction:09d}Z ".encode()

    def write(self, lines: list[bytes]) -> None:
        if not lines:
            return
        notice = []
        if self.lost:
            words = f"stderr F [tarragon] {self.lost} lines of output could not be written here: {self.reason}\n"
            notice = [self.stamp() + words.encode()]
        waiting = notice + lines
        try:
            for block in blocks(waiting, self.limit):
                self._append(block)
                waiting = waiting[len(block) :]
                self.lost = 0
        except OutOfRoom as error:
            unwritten = len(waiting) - error.kept
            if unwritten <= len(lines):
                self.lost = 0  # at least the notice came through
            lost = min(len(lines), unwritten)
            self.reason = str(error)
            self.lost += lost
            self.lost_in_all += lost

    def _append(self, lines: list[bytes]) -> None:
        """Raises OutOfRoom; then whole lines only have been written: the next is not glued to half of one."""
        block = b"".join(lines)
        written = 0
        try:
            if self.descriptor < 0 or (self.size and self.size + len(block) > self.limit):
                self._turn()
            while written < len(block):
                written += os.write(self.descriptor, block[written:])
        except OSError as error:
            whole = block.rfind(b"\n", 0, written) + 1
            self.size += whole
            with contextlib.suppress(OSError):
                os.ftruncate(self.descriptor, self.size)
            raise OutOfRoom(error.strerror or str(error), kept=block.count(b"\n", 0, whole)) from error
        self.size += len(block)

    def _turn(self) -> None:
        if self.descriptor >= 0:
            with contextlib.suppress(FileNotFoundError):  # an earlier turn got only so far
                os.replace(self.path, self.path + ".1")
        fresh = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = fresh
        self.size = os.fstat(fresh).st_size


def blocks(lines: list[bytes], limit: int) -> list[list[bytes]]:
    """The lines in their order, in portions that each fit into one file."""
    portions: list[list[bytes]] = [[]]
    room = limit
    for line in lines:
        if len(line) > room and portions[-1]:
            portions.append([])
            room = limit
        portions[-1].append(line)
        room -= len(line)
    return portions


def unseen(stream: bytes, data: bytes) -> None:
    """Nobody looks."""


class Stream:
    """stdout or stderr of the container, cut into CRI lines: F ends a line, P is a piece of one."""

    def __init__(self, descriptor: int, name: bytes, log: Log, show: Callable[[bytes, bytes], None] = unseen) -> None:
        self.descriptor = descriptor
        self.name = name
        self.log = log
        self.show = show
        self.rest = b""
        self.is_open = True
        os.set_blocking(descriptor, False)

    def read(self) -> bool:
        """Whether there was something."""
        try:
            data = os.read(self.descriptor, READ)
        except BlockingIOError:
            return False
        except OSError:  # a terminal that nobody has open any more
            data = b""
        if not data:
            self.close()
            return False
        self.show(self.name, data)
        self._absorb(data)
        return True

    def _absorb(self, data: bytes) -> None:
        *whole, self.rest = (self.rest + data).split(b"\n")
        stamp = self.log.stamp() + self.name
        lines: list[bytes] = []
        for line in whole:
            while len(line) > CHUNK:
                lines.append(stamp + b" P " + line[:CHUNK] + b"\n")
                line = line[CHUNK:]  # noqa: PLW2901
            lines.append(stamp + b" F " + line + b"\n")
        while len(self.rest) > CHUNK:
            lines.append(stamp + b" P " + self.rest[:CHUNK] + b"\n")
            self.rest = self.rest[CHUNK:]
        self.log.write(lines)

    def flush(self) -> None:
        if self.rest:
            self.log.write([self.log.stamp() + self.name + b" P " + self.rest + b"\n"])
            self.rest = b""

    def close(self) -> None:
        if self.is_open:
            self.flush()
            self.is_open = False
            os.close(self.descriptor)
