"""The line of a program's last output that says most.

After a traceback that is the exception, and else for most programs the last line. mpirun prints its errors in boxes
between rules of dashes, and when a rank has failed, its boxes only repeat that: what the rank itself has written before
is quoted instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tarragon.base.number_rows import is_number_row
from tarragon.job.progress_lines import is_only_progress
from tarragon.job.tracebacks import Chain, exception_text, last_chain, statements

_INVISIBLE = " \t\r\n\0"
"""What may surround a line. Open MPI 5 ends a message with a NUL."""
_RULE = re.compile(r"^[-=*#_\s]{8,}$")
_SENTENCE = re.compile(r"^.+?[.:](?= |$)")
_DETAIL = re.compile(r"^(?P<name>[A-Z][\w ]{1,24}?)\s*:\s+(?P<value>\S.*)$")
_TELLING_DETAILS = ("Error", "Executable", "Remote host", "Exit code", "Errorcode", "EXIT CODE", "KILLED BY SIGNAL")
"""Lines of a box that belong to its first sentence, the most telling ones first."""

_CONSEQUENCES = tuple(
    map(
        re.compile,
        (
            r"MPI_ABORT was invoked on rank",
            r"run detected that one or more processes exited with non-zero status",
            r"run noticed that process rank .{0,300} exited on signal (?:6|15)\b",  # abort(), of C++'s exceptions, too
            r"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES(?!.{0,3000}KILLED BY SIGNAL: (?:4|7|8|11)\b)",
            r"A daemon failed to report back|ORTE was unable to reliably start one or more daemons",
            r"run was unable to start the specified application as it encountered an error",
            r"Primary job\s+terminated normally",
            r"run has exited due to process rank",
            r"An internal error has occurred in ORTE",
        ),
    )
)
"""Boxes that follow from something that was said before, the most telling ones first."""

_NOISE = re.compile(
    # The place in a graph of TensorFlow, and Python's modules, below an error.
    r"^\[\[\{\{node |^Extension modules: "
    r"|^This typically refers to a problem with your application|^Please see the FAQ page for debugging"
    r"|APPLICATION TERMINATED WITH THE EXIT STRING: .*\(signal (?:6|15)\)"
    r"|^Type '\w+ --help' for usage|^\d+ total process(?:es)? killed \(some possibly by"
    r"|more process(?:es)? ha(?:s|ve) sent help message|_base_help_aggregate|^Warning: Permanently added "
    # Intel MPI and MPICH go on after the first error, with the functions that called the one that failed.
    r"|^\[mpiexec@\S+\] (?:Similar arguments:|\s*\w+$|\w+ \(.*\): (?:argument matching|error parsing|unable to parse))"
)
"""Lines outside of boxes that say nothing."""

_START_OF_TENSORFLOW = re.compile(
    r"^WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR"
    r"|^I?\d{4}.*\bport\.cc:\d+\] oneDNN custom operations are on\. "
    r"|cpu_feature_guard\.cc:\d+\] This TensorFlow binary is optimized "
    r"|^To enable the following instructions: .* rebuild TensorFlow with the appropriate compiler flags"
)
"""What TensorFlow prints in every program: no reason of any failure, and easily taken for one."""
_FATAL = "Fatal Python error: "
_NATIVE_CAUSE = re.compile(r"^what\(\): |^terminate called |Check failed: ")
"""What C++ says before it aborts."""
_LONGEST_MESSAGE = 20
"""Statements that an exception's message may have. If more follow a traceback, the program has not ended with it."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that says something, and its number in the output."""

    text: str
    number: int
    raw: str = ""
    """With its indentation."""
    chain: Chain | None = None
    """The tracebacks whose exception it is."""


@dataclass(frozen=True, slots=True)
class _Block:
    """The lines between two rules. `is_box` is False for what a program has written between two boxes."""

    lines: Sequence[_Line]
    is_box: bool


def telling_line(message: str) -> str:
    """Returns the line, or the first sentence of the box, that says most; empty if there is no output."""
    return _telling([*_visible(message.split("\n"))]).text


@dataclass(frozen=True, slots=True)
class TellingPart:
    """The part of an output that says why its program ended: the number of its telling line, and its tracebacks."""

    number: int
    length: int
    """Of the output."""
    chain: Chain | None


def telling_part(lines: Sequence[str]) -> TellingPart:
    """Finds the line that says most; its number is that of no line if there is no output."""
    said = _telling([*_visible(lines)])
    return TellingPart(said.number, len(lines), said.chain)


def is_start_of_tensorflow(line: str) -> bool:
    """Whether it is one of the lines that every program with TensorFlow prints when it starts, well or not."""
    return _START_OF_TENSORFLOW.search(line) is not None


def boxes(lines: Sequence[str]) -> list[str]:
    """Returns the text of each box in one line."""
    found = [[line.text for line in block.lines if line.text] for block in _blocks([*_visible(lines)]) if block.is_box]
    return [" ".join(" ".join(text).split()) for text in reversed(found) if text]


def _visible(lines: Sequence[str]) -> Iterator[_Line]:
    """Yields the lines as a terminal would leave them: the last state of a progress bar. Blank lines have no text, and
    neither has what TensorFlow prints at its start.
    """
    for number, line in enumerate(lines):
        shown = line.rstrip(_INVISIBLE).rpartition("\r")[2]
        shown = "" if is_start_of_tensorflow(shown) else shown
        yield _Line(shown.strip(_INVISIBLE), number, shown)


def _telling(lines: Sequence[_Line]) -> _Line:
    consequences: list[tuple[int, _Line]] = []
    for block in _blocks(lines):
        said = _first_sentence(block.lines) if block.is_box else _last_words(block.lines, lines)
        if said is None:
            continue
        rank = _consequence_rank(block) if block.is_box else None
        if rank is None:
            return said
        consequences.append((rank, said))
    return min(consequences, key=lambda found: found[0], default=(0, _Line("", len(lines))))[1]


def _blocks(lines: Sequence[_Line]) -> Iterator[_Block]:
    """Yields the blocks, the last first. The beginning of an output may be missing, so boxes count from its end."""
    end, is_box = len(lines), False
    for number in range(len(lines) - 1, -1, -1):
        if _RULE.match(lines[number].text):
            yield _Block(lines[number + 1 : end], is_box)
            end, is_box = number, not is_box
    yield _Block(lines[:end], is_box)


def _consequence_rank(block: _Block) -> int | None:
    text = " ".join(line.text for line in block.lines)
    return next((rank for rank, pattern in enumerate(_CONSEQUENCES) if pattern.search(text)), None)


def _last_words(block: Sequence[_Line], lines: Sequence[_Line]) -> _Line | None:
    return (_exception(block, [line.raw for line in lines]) or _crash(block) or _last_line(block)) if block else None


def _exception(block: Sequence[_Line], raw: Sequence[str]) -> _Line | None:
    """Returns the exception of the block's last traceback, unless the program has gone on and said other things."""
    part = range(block[0].number, block[-1].number + 1)
    chain = last_chain(raw, part)
    if chain is None:
        return None
    telling, last = chain.telling, chain.tracebacks[-1]
    if len([*statements(raw[last.exception + 1 : part.stop])]) > _LONGEST_MESSAGE:
        return None
    return _Line(exception_text(raw[telling.exception : telling.end]), telling.exception, chain=chain)


def _crash(block: Sequence[_Line]) -> _Line | None:
    """Returns what a program said that Python's fault handler saw crash: the frames that it prints say less."""
    fatal = next((number for number, line in enumerate(block) if line.text.startswith(_FATAL)), None)
    if fatal is None:
        return None
    before = next((line for line in reversed(block[:fatal]) if line.text), block[fatal])
    return before if _NATIVE_CAUSE.search(before.text) else block[fatal]


def _last_line(lines: Sequence[_Line]) -> _Line | None:
    said = [line for line in lines if line.text and not (_NOISE.search(line.text) or is_only_progress(line.text))]
    return next((line for line in reversed(said) if not is_number_row(line.text)), said[-1] if said else None)


def _first_sentence(box: Sequence[_Line]) -> _Line | None:
    """Returns the first sentence of the box, which may have several lines, with the detail that it announces."""
    lines = [_Line(line.text.lstrip("= "), line.number) for line in box]
    start = next((index for index, line in enumerate(lines) if line.text), None)
    if start is None:
        return None
    stop = next((index for index in range(start + 1, len(lines)) if _begins_anew(lines, index)), len(lines))
    paragraph = " ".join(" ".join(line.text.split()) for line in lines[start:stop])
    sentence = _SENTENCE.match(paragraph)
    said = sentence[0] if sentence else paragraph
    return _Line(_with_detail(said, [line.text for line in lines[stop:] if line.text]), lines[start].number)


def _begins_anew(lines: Sequence[_Line], index: int) -> bool:
    """Whether the line belongs to no sentence of the line above."""
    text = lines[index].text
    return not text or lines[index - 1].text.endswith(":") or _DETAIL.match(text) is not None


def _with_detail(sentence: str, rest: Sequence[str]) -> str:
    if sentence.endswith(":"):
        detail = _DETAIL.match(rest[0]) if rest else None
        return f"{sentence} {detail['value'] if detail else rest[0]}" if rest else sentence.rstrip(":")
    details = {found["name"]: found[0] for line in rest if (found := _DETAIL.match(line))}
    telling = next((details[name] for name in _TELLING_DETAILS if name in details), "")
    sentence = sentence.rstrip(".")
    return f"{sentence} ({' '.join(telling.split())})" if telling else sentence
