"""Writes a container's output to a log of bounded size, in CRI format.

The shim imports this module outside the package, so it uses only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

MAX_LINE_BYTES = 16 * 1024  # containerd cuts longer lines at this size, too
READ = 64 * 1024


class DiskFull(Exception):
    """The disk is full: only the first `kept` lines were written."""

    def __init__(self, reason: str, *, kept: int) -> None:
        super().__init__(reason)
        self.lines_written = kept


class LogWriter:
    """A log file and its rotated predecessor, each within a limit. A full disk loses lines but blocks no writer."""

    def __init__(self, path: str, limit: int) -> None:
        self.path = path
        self.limit = limit
        self.lost = 0
        self.total_lost = 0
        self.reason = ""
        self.size = 0
        self.descriptor = -1
        self._stamped = (0, "")

    def create(self) -> None:
        """Create the file, so that a container without output has an empty log."""
        with contextlib.suppress(OSError):
            self._rotate()

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
            text = f"stderr F [tarragon] {self.lost} lines of output could not be written here: {self.reason}\n"
            notice = [self.stamp() + text.encode()]
        pending = notice + lines
        try:
            for block in blocks(pending, self.limit):
                self._append(block)
                pending = pending[len(block) :]
                self.lost = 0
        except DiskFull as error:
            unwritten = len(pending) - error.lines_written
            if unwritten <= len(lines):
                self.lost = 0  # at least the notice was written
            lost = min(len(lines), unwritten)
            self.reason = str(error)
            self.lost += lost
            self.total_lost += lost

    def _append(self, lines: list[bytes]) -> None:
        """Append lines. Raises DiskFull after truncating the file to whole lines, so that no half line remains."""
        block = b"".join(lines)
        written = 0
        try:
            if self.descriptor < 0 or (self.size and self.size + len(block) > self.limit):
                self._rotate()
            while written < len(block):
                written += os.write(self.descriptor, block[written:])
        except OSError as error:
            whole = block.rfind(b"\n", 0, written) + 1
            self.size += whole
            with contextlib.suppress(OSError):
                os.ftruncate(self.descriptor, self.size)
            raise DiskFull(error.strerror or str(error), kept=block.count(b"\n", 0, whole)) from error
        self.size += len(block)

    def _rotate(self) -> None:
        if self.descriptor >= 0:
            with contextlib.suppress(FileNotFoundError):  # an earlier rotation failed after this step
                os.replace(self.path, self.path + ".1")
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size


def blocks(lines: list[bytes], limit: int) -> list[list[bytes]]:
    """The lines in order, grouped into blocks that each fit into one file."""
    grouped: list[list[bytes]] = [[]]
    room = limit
    for line in lines:
        if len(line) > room and grouped[-1]:
            grouped.append([])
            room = limit
        grouped[-1].append(line)
        room -= len(line)
    return grouped


def discard_output(stream: bytes, data: bytes) -> None:
    """Discard the output, as no viewer is attached."""


class CriStream:
    """stdout or stderr of the container, split into CRI lines: tag F ends a line, P marks a part of one."""

    def __init__(
        self, descriptor: int, name: bytes, log: LogWriter, show: Callable[[bytes, bytes], None] = discard_output
    ) -> None:
        self.descriptor = descriptor
        self.name = name
        self.log = log
        self.on_output = show
        self.unfinished_line = b""
        self.is_open = True
        os.set_blocking(descriptor, False)

    def read(self) -> bool:
        """Read what is available. False when there was nothing."""
        try:
            data = os.read(self.descriptor, READ)
        except BlockingIOError:
            return False
        except OSError:  # a terminal whose other end is closed
            data = b""
        if not data:
            self.close()
            return False
        self.on_output(self.name, data)
        self._absorb(data)
        return True

    def _absorb(self, data: bytes) -> None:
        *whole, self.unfinished_line = (self.unfinished_line + data).split(b"\n")
        stamp = self.log.stamp() + self.name
        lines: list[bytes] = []
        for line in whole:
            while len(line) > MAX_LINE_BYTES:
                lines.append(stamp + b" P " + line[:MAX_LINE_BYTES] + b"\n")
                line = line[MAX_LINE_BYTES:]  # noqa: PLW2901
            lines.append(stamp + b" F " + line + b"\n")
        while len(self.unfinished_line) > MAX_LINE_BYTES:
            lines.append(stamp + b" P " + self.unfinished_line[:MAX_LINE_BYTES] + b"\n")
            self.unfinished_line = self.unfinished_line[MAX_LINE_BYTES:]
        self.log.write(lines)

    def flush(self) -> None:
        if self.unfinished_line:
            self.log.write([self.log.stamp() + self.name + b" P " + self.unfinished_line + b"\n"])
            self.unfinished_line = b""

    def close(self) -> None:
        if self.is_open:
            self.flush()
            self.is_open = False
            os.close(self.descriptor)
