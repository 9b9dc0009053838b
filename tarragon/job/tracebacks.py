"""The tracebacks of a Python program in the lines of its output: their frames, chains, and what exceptions say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tarragon.base.number_rows import is_number_row

_INVISIBLE = " \t\r\n\0"
_GROUP_MARGIN = re.compile(r"^ *[|+] (?! *$)")
"""What ExceptionGroups put before each line."""
_GROUP_RULE = re.compile(r"^ *\+-[-+]* ?(?:\d+ -+|-*)$")
_HEADER = re.compile(r"^(?:Exception Group )?Traceback \(most recent call last\):$")
_FRAME = re.compile(r"^  File \"(?P<path>[^\"]+)\", line \d+")
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:: .*|:|)$")
_GROUP_EXCEPTION = re.compile(r"\(\d+ sub-exceptions?\)$")
_LINK = re.compile(
    r"^(?:The above exception was the direct cause of the following exception:"
    r"|During handling of the above exception, another exception occurred:)$"
)
_QUOTES = '"""'
"""Stand around the traceback of another process."""
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python3[.\d]*/|/__autograph_generated_file|^<(?!string>|stdin>)"
)
"""Paths of frames that are not the user's own."""

_ANNOUNCING = re.compile(r":$|^[\w.]+: Exception encountered when calling .*\.$")
_IN_USER_CODE = "in user code:"
"""With this, TensorFlow announces frames within the message, and the exception behind them."""
_INNER_FRAME = re.compile(r"^(?P<indent> {3,})File \"(?P<path>[^\"]+)\", line \d+")
_NO_STATEMENT = re.compile(r"^… \d+ more |^\[\[\{\{node |^Detected at node |^[~^]+$|^\W*$|^Extension modules: ")
_NUMBERS = re.compile(r"(?:[-+]?\d[\d.e+-]{0,40}+[\])]{0,8}+[,\s][\s\[(]{0,40}+){8,}+")
"""A list of them within a line."""
_PLACE_IN_GRAPH = re.compile(r"\{\{function_node \S+\}\} ")
"""What TensorFlow puts before messages of kernels."""
_STYLE = re.compile(r"\x1b\[[\d;]*m")
_LENGTH_READ = 2048
"""Characters of a line in which lists of numbers are looked for: half of them at its beginning, half at its end."""
LONGEST_TEXT = 240
"""Characters of an exception in one line."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame, and the numbers of its first line and of the line behind its last."""

    start: int
    end: int
    is_own: bool
    """Whether its file is the user's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traceback:
    """A traceback. Its parts are numbers of lines; `end` is behind its exception's message, as far as is known."""

    start: int
    frames: Sequence[Frame]
    exception: int
    end: int
    is_linked: bool
    """Whether it follows from the traceback before it, or is in the same group."""
    is_group: bool

    @property
    def last_own_frame(self) -> Frame:
        """The last frame in a file of the user's; the last one of all if there is none."""
        return next((frame for frame in reversed(self.frames) if frame.is_own), self.frames[-1])


@dataclass(frozen=True, slots=True)
class Chain:
    """Tracebacks that follow from each other, or are of one group."""

    tracebacks: Sequence[Traceback]

    @property
    def telling(self) -> Traceback:
        """The one whose exception says why the program ended: the last one; of a group, the first in it."""
        groups = [index for index, each in enumerate(self.tracebacks) if each.is_group]
        if not groups:
            return self.tracebacks[-1]
        return self.tracebacks[min(groups[-1] + 1, len(self.tracebacks) - 1)]

    @property
    def first_cause(self) -> Traceback:
        return self.tracebacks[0]


@dataclass(slots=True)
class _Open:
    """A traceback that is being read."""

    start: int
    is_linked: bool
    has_header: bool
    frames: list[Frame] = field(default_factory=list)
    exception: int | None = None


def plain(line: str) -> str:
    """Returns the line without the margin of an exception group."""
    return _GROUP_MARGIN.sub("", line)


def is_frame_line(line: str) -> bool:
    return _FRAME.match(plain(line)) is not None


def is_group_rule(line: str) -> bool:
    return _GROUP_RULE.match(line) is not None


def is_link(line: str) -> bool:
    """Whether the line says that the traceback below follows from the one above."""
    return _LINK.match(plain(line)) is not None


def last_chain(lines: Sequence[str], part: range) -> Chain | None:
    """Returns the last traceback of a part of the lines, with those that it follows from.

    The beginning of the first may be missing.
    """
    tracebacks = list(_tracebacks(lines, part))
    if not tracebacks:
        return None
    start = next(index for index in range(len(tracebacks) - 1, -1, -1) if index == 0 or not tracebacks[index].is_linked)
    return Chain(tracebacks[start:])


def _tracebacks(lines: Sequence[str], part: range) -> Iterator[Traceback]:
    """Yields the tracebacks whose exceptions are there, each with an end where the next one or its link begins."""
    found = [(each, each.exception) for each in _openings(lines, part) if each.exception is not None]
    for index, (each, exception) in enumerate(found):
        following = found[index + 1][0].start if index + 1 < len(found) else part.stop
        yield Traceback(
            start=each.start,
            frames=each.frames,
            exception=exception,
            end=_end(lines, exception, following),
            is_linked=each.is_linked,
            is_group=_GROUP_EXCEPTION.search(lines[exception]) is not None,
        )


def _end(lines: Sequence[str], exception: int, following: int) -> int:
    """Returns where a message ends that is followed by another traceback, or by the end."""
    while following > exception + 1 and _is_between(lines[following - 1]):
        following -= 1
    return following


def _is_between(line: str) -> bool:
    """Whether the line belongs to no traceback, but links two."""
    text = plain(line).strip()
    return not text or text in {_QUOTES, "|"} or is_link(text) or is_group_rule(line)


def _openings(lines: Sequence[str], part: range) -> Iterator[_Open]:
    current: _Open | None = None
    link = False
    for number in part:
        line, text = lines[number], plain(lines[number])
        if _HEADER.match(text):
            if current is not None:
                yield current
            current, link = _Open(number, link or _is_in_group(line), has_header=True), False
        elif is_link(line):
            link = True
        elif current is None and _FRAME.match(text):
            current = _Open(number, is_linked=False, has_header=False)
        if current is not None and current.exception is None:
            _read(current, number, text)
    if current is not None:
        yield current


def _is_in_group(line: str) -> bool:
    return line.lstrip(" ").startswith("| ")


def _read(current: _Open, number: int, text: str) -> None:
    """Adds the line to the traceback: a frame, more of the last frame, or the exception."""
    frame = _FRAME.match(text)
    if frame is not None:
        current.frames.append(Frame(number, number + 1, _LIBRARY.search(frame["path"]) is None))
    elif text.startswith(" ") and current.frames:
        last = current.frames[-1]
        current.frames[-1] = Frame(last.start, number + 1, last.is_own)
    elif text.strip() and current.frames and (current.has_header or _EXCEPTION.match(text)):
        current.exception = number


def exception_text(lines: Sequence[str]) -> str:
    """Returns an exception and its message in one line.

    If its first line only announces what comes, the next statement completes it. A bracket that it opens, such as
    that of an array, is completed by the last statement.
    """
    first = plain(lines[0]).strip(_INVISIBLE)
    frames = {number for frame in inner_frames(lines) for number in range(frame.start, frame.end)}
    more = [*statements([line for number, line in enumerate(lines) if number and number not in frames])]
    if more and first.endswith(_IN_USER_CODE):
        first = more[0]
    elif more and _ANNOUNCING.search(first):
        first = f"{first} {more[0]}"
    elif more and first[-1] in "({[,":
        first = f"{first} … {more[-1]}"
    return short_line(_STYLE.sub("", first), LONGEST_TEXT)


def inner_frames(lines: Sequence[str]) -> Iterator[Frame]:
    """Yields the frames that TensorFlow lists within a message, each with its line of code."""
    for number, line in enumerate(lines):
        found = _INNER_FRAME.match(plain(line))
        if found is not None:
            has_code = plain("".join(lines[number + 1 : number + 2])).startswith(found["indent"] + " ")
            yield Frame(number, number + 1 + has_code, _LIBRARY.search(found["path"]) is None)


def statements(lines: Sequence[str]) -> Iterator[str]:
    """Yields the lines of an exception's message that are not rows of numbers, frames or names of nodes of a graph."""
    for line in lines:
        text = plain(line).strip(_INVISIBLE)
        if text and not (is_number_row(text) or is_frame_line(line) or _NO_STATEMENT.search(text)):
            yield text


def short_line(text: str, size: int) -> str:
    """Returns the line without long lists of numbers, and without its middle if it is longer than `size`."""
    if len(text) > _LENGTH_READ:
        text = f"{text[: _LENGTH_READ // 2]} … {text[-_LENGTH_READ // 2 :]}"
    text = _NUMBERS.sub("… ", _PLACE_IN_GRAPH.sub("", text))
    if len(text) <= size:
        return text
    return f"{text[: size * 2 // 3]} … {text[-(size // 3 - 3) :]}"
