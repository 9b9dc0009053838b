"""Reads the log of one run of a container, which its shim writes in CRI format: as a whole, its tail, or on and on."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from tarragon.base.clock import Clock

LOOK_SECONDS = 0.1
"""Between two looks for more; a log has no other way to say that it has grown."""
_CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which part of a log, and how. `tail` counts lines as the program wrote them."""

    timestamps: bool = False
    tail: int | None = None
    since: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A piece of output; `ends` when a line end follows it."""

    stamp: bytes
    stream: bytes
    ends: bool
    text: bytes


EVERYTHING = Wanted()


def parsed(raw: bytes) -> Line | None:
    """None for what no shim has written."""
    parts = raw.split(b" ", 3)
    if len(parts) != 4 or parts[2] not in {b"F", b"P"}:  # noqa: PLR2004 - stamp, stream, tag, text
        return None
    return Line(parts[0], parts[1], parts[2] == b"F", parts[3])


class _Printer:
    """Turns lines of the file into what a user sees."""

    def __init__(self, wanted: Wanted) -> None:
        self._timestamps = wanted.timestamps
        self._since = _stamp(wanted.since) if wanted.since else b""
        self._at_start = True

    def told(self, lines: list[bytes]) -> bytes:
        return b"".join(self._piece(line) for raw in lines if (line := parsed(raw)) and line.stamp >= self._since)

    def _piece(self, line: Line) -> bytes:
        prefix = line.stamp + b" " if self._timestamps and self._at_start else b""
        self._at_start = line.ends
        return prefix + line.text + (b"\n" if line.ends else b"")


def _stamp(moment: dt.datetime) -> bytes:
    """Comparable with a line's stamp as text."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()


def older(log: Path) -> Path:
    """Where the shim puts a log that is full."""
    return log.with_name(log.name + ".1")


def read(log: Path, wanted: Wanted = EVERYTHING) -> Iterator[bytes]:
    """All that is there now, in chunks. Nothing when there is no log."""
    printer = _Printer(wanted)
    with _Reader(log, wanted.tail) as reader:
        while lines := reader.lines():
            yield printer.told(lines)


async def follow(log: Path, wanted: Wanted, has_ended: Callable[[], bool], clock: Clock) -> AsyncIterator[bytes]:
    """What is there and what comes, until the run has ended and everything has been told."""
    printer = _Printer(wanted)
    with _Reader(log, wanted.tail) as reader:
        while True:
            # Asked before the log is read: what was written before the end is then surely in it.
            ended = has_ended()
            while lines := reader.lines():
                if told := printer.told(lines):
                    yield told
            if ended:
                return
            await clock.sleep(LOOK_SECONDS)


def last_words(log: Path, lines: int = 80, size: int = 2048) -> str:
    """The end of the output, for a termination message."""
    told = b"".join(read(log, Wanted(tail=lines)))
    return told[-size:].decode(errors="replace")


class _Reader:
    """Goes through a log from its older file to its newer one, and on to those that follow."""

    def __init__(self, log: Path, tail: int | None) -> None:
        self._log = log
        self._rest = b""
        self._file: BinaryIO | None = None
        self._waiting: list[BinaryIO] = [file for path in (older(log), log) if (file := _opened(path))]
        if tail is not None:
            self._skip_to_tail(tail)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in [self._file, *self._waiting]:
            if file is not None:
                file.close()

    def lines(self) -> list[bytes]:
        """The next whole lines; none at the end of all there is."""
        while True:
            data = self._file.read(_CHUNK) if self._file else b""
            if data:
                *whole, self._rest = (self._rest + data).split(b"\n")
                if whole:
                    return whole
            elif not (self._stepped_back() or self._turn()):
                return []

    def _stepped_back(self) -> bool:
        """On a full disk the shim takes half a line back, which we may have read already."""
        if self._file is None or self._file.tell() <= os.fstat(self._file.fileno()).st_size:
            return False
        self._file.seek(self._file.tell() - len(self._rest))
        self._rest = b""
        return self._file.tell() <= os.fstat(self._file.fileno()).st_size

    def _turn(self) -> bool:
        """To the next file. The one before has been read to its end, after the next one came to be."""
        if not self._waiting:
            self._waiting = self._followers()
            if self._waiting and self._file is not None:
                # Between the last read and the turn of the log there may have been more.
                return True
        if not self._waiting:
            return False
        if self._file is not None:
            self._file.close()
        self._file = self._waiting.pop(0)
        self._rest = b""
        return True

    def _followers(self) -> list[BinaryIO]:
        """Files newer than ours. When the log has turned more than once, the one in between comes first."""
        newest = _opened(self._log)
        if newest is None:
            return []
        if self._file is None:
            return [newest]
        if _same(newest, self._file):
            newest.close()
            return []
        between = _opened(older(self._log))
        if between is None or _same(between, self._file) or _same(between, newest):
            if between is not None:
                between.close()
            return [newest]
        return [between, newest]

    def _skip_to_tail(self, wanted: int) -> None:
        """To the place in the files behind which there are that many lines."""
        for index in range(len(self._waiting) - 1, -1, -1):
            file = self._waiting[index]
            place, found = _tail_of(file, wanted)
            file.seek(place)
            if found >= wanted:
                for skipped in self._waiting[:index]:
                    skipped.close()
                self._waiting = self._waiting[index:]
                return
            wanted -= found


def _tail_of(file: BinaryIO, wanted: int) -> tuple[int, int]:
    """Where the last lines begin, and how many of those wanted the file has. A line without an end counts as one."""
    if wanted == 0:
        return file.seek(0, os.SEEK_END), 0
    end = place = file.seek(0, os.SEEK_END)
    data, step = b"", _CHUNK
    starts: list[int] = []
    # In the middle of a file the first line found may be half of one, and the second the rest of it.
    while place > 0 and len(starts) < wanted + 2:
        begin = max(0, place - step)
        file.seek(begin)
        data = file.read(place - begin) + data
        place, step = begin, step * 2
        starts = _line_starts(data)
    if place == 0 and len(starts) <= wanted:
        return 0, len(starts)
    return end - len(data) + starts[-wanted], wanted


def _line_starts(data: bytes) -> list[int]:
    """Places where a line of the program begins, as far as the data shows: after the end of the one before."""
    starts: list[int] = []
    place, fresh = 0, True
    for raw in data.split(b"\n")[:-1]:
        line = parsed(raw)
        if fresh:
            starts.append(place)
        fresh = line is None or line.ends
        place += len(raw) + 1
    return starts


def _opened(path: Path) -> BinaryIO | None:
    with contextlib.suppress(OSError):
        return path.open("rb", buffering=0)
    return None


def _same(one: BinaryIO, other: BinaryIO) -> bool:
    return os.path.sameopenfile(one.fileno(), other.fileno())
