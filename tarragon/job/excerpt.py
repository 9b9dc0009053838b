"""The lines of a program's last output that are shown of a failure.

Each line gets a rank, and the best ones are shown in their order. So an exception, what caused it, and the last frame
in a file of the user's are there, however long the traceback and the message are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum, auto
from itertools import pairwise

from tarragon.base.number_rows import omitted_rows, shortened
from tarragon.job.termination_message import TellingPart, is_start_of_tensorflow, telling_part
from tarragon.job.tracebacks import Chain, Frame, inner_frames, is_frame_line, is_link, statements

LINE_LENGTH = 400
"""Characters of a line of an excerpt that are shown."""

_INVISIBLE = " \t\r\n\0"
_FIRST_WORDS = 3
_DIGITS = re.compile(r"[\d.]+")


class _Rank(IntEnum):
    """What a line is, the most important first."""

    TELLING = auto()
    CAUSE = auto()
    """The exception from which the others followed."""
    OWN_FRAME = auto()
    """The last frame in a file of the user's."""
    HEADER = auto()
    CAUSE_FRAME = auto()
    FIRST_WORDS = auto()
    """Of the telling exception's message."""
    LINK = auto()
    """Between the first cause and the telling exception."""
    MESSAGE = auto()
    """More of the telling exception's message, or lines around a telling line without traceback."""
    FIRST_FRAME = auto()
    LAST_FRAME = auto()
    FRAME = auto()
    OTHER = auto()
    REPEATED = auto()
    """Like the lines below it, as those of a progress bar or of a warning that comes again and again."""
    DECORATION = auto()
    """Rows of numbers, and the marks below a line of code."""


def telling_excerpt(lines: Iterable[str], size: int) -> list[str]:
    """Returns at most `size` lines, the last ones unless others say more; `… 5 more lines` stands for omitted ones.

    Blank lines are left out, and so are those that TensorFlow prints at its start.
    """
    shown = shortened(line for line in lines if line.strip(_INVISIBLE) and not is_start_of_tensorflow(line))
    places = _places(shown, size)
    kept: list[int] = []
    candidates = [number for number, line in enumerate(shown) if not omitted_rows(line)]
    for number in sorted(candidates, key=places.__getitem__):
        more = sorted([*kept, number])
        if len([*_rendered(shown, more)]) <= size:
            kept = more
    return [*_rendered(shown, kept)]


def _rendered(lines: Sequence[str], kept: Sequence[int]) -> Iterator[str]:
    """Yields the lines that are kept, and a note for others between and behind them."""
    for number, following in pairwise([*kept, len(lines)]):
        yield lines[number]
        omitted = lines[number + 1 : following]
        if len(omitted) == 1:
            yield omitted[0]
        elif omitted:
            yield f"… {sum(omitted_rows(line) or 1 for line in omitted)} more lines"


def _places(lines: Sequence[str], size: int) -> list[tuple[_Rank, int, int]]:
    """Returns the place of each line in the order of importance. Among equals the last one is the most important."""
    part = telling_part(lines)
    ranks = [*_ranks(lines)]
    units = [*range(len(lines))]
    for number, rank in _around(part, size) if part.chain is None else _of_chain(lines, part.chain):
        if ranks[number] is not _Rank.DECORATION:
            ranks[number] = rank
    if part.number < len(lines):
        ranks[part.number] = _Rank.TELLING
    for traceback in part.chain.tracebacks if part.chain is not None else ():
        for frame in traceback.frames:
            units[frame.start : frame.end] = [frame.start] * (frame.end - frame.start)
    return [(rank, -unit, number) for number, (rank, unit) in enumerate(zip(ranks, units, strict=True))]


def _ranks(lines: Sequence[str]) -> Iterator[_Rank]:
    """Yields the ranks that lines have by themselves."""
    alike = [_DIGITS.sub("0", line) for line in lines]
    for number, line in enumerate(lines):
        if not [*statements([line])] and not is_frame_line(line):
            yield _Rank.DECORATION
        elif alike[number + 1 : number + 3] == [alike[number]] * 2:
            yield _Rank.REPEATED
        else:
            yield _Rank.OTHER


def _around(part: TellingPart, size: int) -> Iterator[tuple[int, _Rank]]:
    """Yields the lines around a telling line above the end, as in a box of mpirun."""
    for number in range(max(0, part.number - size // 4), min(part.number + size // 4, part.length)):
        yield number, _Rank.MESSAGE


def _of_chain(lines: Sequence[str], chain: Chain) -> Iterator[tuple[int, _Rank]]:
    """Yields the ranks of the lines of tracebacks. Of a line's ranks the last one counts."""
    for number in range(chain.first_cause.start, chain.tracebacks[-1].end):
        yield number, _Rank.LINK if is_link(lines[number]) else _Rank.FRAME
    for traceback in chain.tracebacks:
        yield traceback.exception, _Rank.LINK
    telling, cause = chain.telling, chain.first_cause
    yield from _of_message(lines, range(telling.exception + 1, telling.end))
    yield from _of_frame(telling.frames[0], _Rank.FIRST_FRAME)
    yield from _of_frame(telling.frames[-1], _Rank.LAST_FRAME)
    yield from _of_frame(cause.last_own_frame, _Rank.CAUSE_FRAME)
    yield from _of_frame(telling.last_own_frame, _Rank.OWN_FRAME)
    yield cause.start, _Rank.LINK
    yield cause.exception, _Rank.CAUSE
    yield telling.start, _Rank.HEADER


def _of_message(lines: Sequence[str], message: range) -> Iterator[tuple[int, _Rank]]:
    inner = [
        replace(each, start=each.start + message.start, end=each.end + message.start)
        for each in inner_frames(lines[message.start : message.stop])
    ]
    in_frames = {number for frame in inner for number in range(frame.start, frame.end)}
    said = [number for number in message if number not in in_frames and [*statements([lines[number]])]]
    for number in message:
        words = _Rank.FIRST_WORDS if number in said[:_FIRST_WORDS] else _Rank.MESSAGE
        yield number, words if number in said else _Rank.DECORATION
    for frame in inner:
        yield from _of_frame(frame, _Rank.CAUSE_FRAME if frame.is_own else _Rank.FRAME)


def _of_frame(frame: Frame, rank: _Rank) -> Iterator[tuple[int, _Rank]]:
    for number in range(frame.start, min(frame.start + 2, frame.end)):
        yield number, rank
