"""Reads the log of one container run, written by its shim in CRI format: whole, its tail, or followed."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from tarragon.base.clock import Clock
from tarragon.base.number_rows import shortened

POLL_SECONDS = 0.1
"""How often a followed log is read for more."""
_CHUNK = 256 * 1024
_LONGEST_CRI_LINE = 32 * 1024
"""More than the shim writes into one."""
_LINES_READ = 2000
"""Of a log's end, for a termination message: more than numpy and TensorFlow print of an array."""
_BYTES_READ = 512 * 1024
"""For the same purpose. It bounds the time that the node spends, whatever a program writes before it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """Which part of a log to read, and how. `tail` counts lines as the program wrote them."""

    timestamps: bool = False
    tail: int | None = None
    since: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class CriLine:
    """One CRI line: a piece of output. `ends`: a line break follows it (CRI's tag F)."""

    stamp: bytes
    stream: bytes
    ends: bool
    text: bytes


WHOLE_LOG = LogSelection()


def parse_line(raw: bytes) -> CriLine | None:
    """Parse a CRI line; None if it is not one."""
    parts = raw.split(b" ", 3)
    if len(parts) != 4 or parts[2] not in {b"F", b"P"}:  # noqa: PLR2004 - stamp, stream, tag, text
        return None
    return CriLine(parts[0], parts[1], parts[2] == b"F", parts[3])


class _Printer:
    """Turns CRI lines into the output that a user sees."""

    def __init__(self, wanted: LogSelection) -> None:
        self._timestamps = wanted.timestamps
        self._since = _stamp(wanted.since) if wanted.since else b""
        self._at_start = True

    def render(self, lines: list[bytes]) -> bytes:
        return b"".join(self._piece(line) for raw in lines if (line := parse_line(raw)) and line.stamp >= self._since)

    def _piece(self, line: CriLine) -> bytes:
        prefix = line.stamp + b" " if self._timestamps and self._at_start else b""
        self._at_start = line.ends
        return prefix + line.text + (b"\n" if line.ends else b"")


def _stamp(moment: dt.datetime) -> bytes:
    """The moment in the format of a line's stamp, so that the two compare as text."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()


def rotated_log(log: Path) -> Path:
    """The file to which the shim rotates a full log."""
    return log.with_name(log.name + ".1")


def read(log: Path, wanted: LogSelection = WHOLE_LOG) -> Iterator[bytes]:
    """The log's current content, in chunks; nothing when there is no log."""
    printer = _Printer(wanted)
    with _Reader(log, wanted.tail) as reader:
        while lines := reader.lines():
            yield printer.render(lines)


async def follow(log: Path, wanted: LogSelection, has_ended: Callable[[], bool], clock: Clock) -> AsyncIterator[bytes]:
    """The log's content and what is appended to it, until the run has ended and all of it was read."""
    printer = _Printer(wanted)
    with _Reader(log, wanted.tail) as reader:
        while True:
            # Checked before the log is read, so that all output before the end is read.
            ended = has_ended()
            while lines := reader.lines():
                if output := printer.render(lines):
                    yield output
            if ended:
                return
            await clock.sleep(POLL_SECONDS)


def log_tail(log: Path, lines: int = 80, size: int = 2048) -> str:
    """The end of the output, for a termination message.

    Kubernetes takes the last 80 lines and 2 KiB. As these would often be an array that an exception shows, and not the
    exception, rows of numbers are shortened first.
    """
    output = _Printer(WHOLE_LOG).render(_last_lines(log, _BYTES_READ)).decode(errors="replace")
    body, end = output.removesuffix("\n"), "\n" * output.endswith("\n")
    text = "\n".join(shortened(body.split("\n")[-_LINES_READ:])[-lines:]) + end
    return text.encode()[-size:].decode(errors="replace")


def _last_lines(log: Path, size: int) -> list[bytes]:
    """The CRI lines at the end of a log that is no longer written to, of at most `size` bytes in all."""
    data = b""
    for path in (log, rotated_log(log)):
        file = _opened(path)
        if file is None:
            continue
        with file:
            begin = max(0, file.seek(0, os.SEEK_END) + len(data) - size)
            file.seek(begin)
            data = file.read() + data
        if begin:
            return data.split(b"\n")[1:-1]  # the first line may be half a line
    return data.split(b"\n")[:-1]


class _Reader:
    """Reads a log from its rotated file to its current one, and on through later rotations."""

    def __init__(self, log: Path, tail: int | None) -> None:
        self._log = log
        self._rest = b""
        self._file: BinaryIO | None = None
        self._pending: list[BinaryIO] = [file for path in (rotated_log(log), log) if (file := _opened(path))]
        if tail is not None:
            self._skip_to_tail(tail)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in [self._file, *self._pending]:
            if file is not None:
                file.close()

    def lines(self) -> list[bytes]:
        """The next whole lines; none at the end of the log."""
        while True:
            data = self._file.read(_CHUNK) if self._file else b""
            if data:
                *whole, self._rest = (self._rest + data).split(b"\n")
                if whole:
                    return whole
            elif not (self._was_truncated() or self._next_file()):
                return []

    def _was_truncated(self) -> bool:
        """Whether the shim truncated a half-written line on a full disk; reading then goes on before that line."""
        if self._file is None or self._file.tell() <= os.fstat(self._file.fileno()).st_size:
            return False
        self._file.seek(self._file.tell() - len(self._rest))
        self._rest = b""
        return self._file.tell() <= os.fstat(self._file.fileno()).st_size

    def _next_file(self) -> bool:
        """Move on to the next file. The previous one was read to its end after the next one was created."""
        if not self._pending:
            self._pending = self._newer_files()
            if self._pending and self._file is not None:
                # More may have been written between the last read and the rotation.
                return True
        if not self._pending:
            return False
        if self._file is not None:
            self._file.close()
        self._file = self._pending.pop(0)
        self._rest = b""
        return True

    def _newer_files(self) -> list[BinaryIO]:
        """Files newer than the current one. After several rotations, the rotated file comes first."""
        newest = _opened(self._log)
        if newest is None:
            return []
        if self._file is None:
            return [newest]
        if _same(newest, self._file):
            newest.close()
            return []
        between = _opened(rotated_log(self._log))
        if between is None or _same(between, self._file) or _same(between, newest):
            if between is not None:
                between.close()
            return [newest]
        return [between, newest]

    def _skip_to_tail(self, wanted: int) -> None:
        """Seek to the position after which there are that many lines."""
        for index in range(len(self._pending) - 1, -1, -1):
            file = self._pending[index]
            begins_anew = index == 0 or _ends_with_line(self._pending[index - 1])
            position, found = _tail_of(file, wanted, begins_anew=begins_anew)
            file.seek(position)
            if found >= wanted:
                for skipped in self._pending[:index]:
                    skipped.close()
                self._pending = self._pending[index:]
                return
            wanted -= found


def _tail_of(file: BinaryIO, wanted: int, *, begins_anew: bool) -> tuple[int, int]:
    """The position of the last `wanted` lines, and how many of them begin in the file.

    An unfinished line counts as one. The first does only if it `begins_anew`, and not in the file before.
    """
    if wanted == 0:
        return file.seek(0, os.SEEK_END), 0
    end = position = file.seek(0, os.SEEK_END)
    data, step = b"", _CHUNK
    starts: list[int] = []
    # In the middle of a file, the first line found may be half a line, and the second the rest of a long one.
    while position > 0 and len(starts) < wanted + 2:
        begin = max(0, position - step)
        file.seek(begin)
        data = file.read(position - begin) + data
        position, step = begin, step * 2
        starts = _line_starts(data)
    if position == 0 and not begins_anew:
        starts = starts[1:]
    if len(starts) < wanted:
        return 0, len(starts)
    return end - len(data) + starts[-wanted], wanted


def _ends_with_line(file: BinaryIO) -> bool:
    """Whether the log was rotated between two lines of the program, and not within one."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _LONGEST_CRI_LINE))
    last = file.read().rpartition(b"\n")[0].rpartition(b"\n")[2]
    line = parse_line(last)
    return line is None or line.ends


def _line_starts(data: bytes) -> list[int]:
    """Positions where the program's lines begin, as far as the data shows."""
    starts: list[int] = []
    position, is_start = 0, True
    for raw in data.split(b"\n")[:-1]:
        line = parse_line(raw)
        if is_start:
            starts.append(position)
        is_start = line is None or line.ends
        position += len(raw) + 1
    return starts


def _opened(path: Path) -> BinaryIO | None:
    with contextlib.suppress(OSError):
        return path.open("rb", buffering=0)
    return None


def _same(one: BinaryIO, other: BinaryIO) -> bool:
    return os.path.sameopenfile(one.fileno(), other.fileno())
