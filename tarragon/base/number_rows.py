"""Rows of numbers in an output, such as the array in an error's message: a few of them tell as much as all."""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableSequence, Sequence

_LENGTH_READ = 1024
"""Characters of a line by which it is judged: a program may write megabytes into one."""
_KEPT = 2
"""Rows of a block that are kept, the first ones."""
_WORDS_OF_ARRAYS = re.compile(
    r"\b(?:array|tensor|dtype=[\w.]+|nan|inf|True|False|None|numpy=)(?=\W|$)|(?<=\d)e(?=[+-]?\d)"
)
_ROW = re.compile(r"\.\.\.|(?<!\S)[^\s\d]*+\d\S*+\s++(?:[-+\[(|,]++\s*+)?\d|\d\.?\s{0,40}+[\])},]|[\[(]\s*+[-+]?\d")
"""Takes time in proportion to the line, as each of its repetitions is possessive and begins at another place."""
_MARKER = re.compile(r"^… (?P<count>\d+) more rows? of numbers$")


def is_number_row(line: str) -> bool:
    """Whether the line is a row of an array or of a table, or the dots for rows of a large array.

    A number alone is none: it may count something. Of a long line only the beginning is read.
    """
    rest = _WORDS_OF_ARRAYS.sub("", line[:_LENGTH_READ])
    return _ROW.search(rest) is not None and not any(map(str.isalpha, rest))


def extend_shortened(lines: MutableSequence[str], more: Iterable[str]) -> None:
    """Appends lines; of a block of number rows the first two, and then how many more there are.

    An array of three dimensions is one block, although it has blank lines.
    """
    for line in more:
        count = omitted_rows(lines[-1]) if lines else 0
        if count and not line.strip():
            continue
        if not is_number_row(line):
            lines.append(line)
        elif count:
            lines[-1] = _marker(count + 1)
        else:
            lines.append(_marker(1) if _ends_with_rows(lines) else line)


def _ends_with_rows(lines: Sequence[str]) -> bool:
    last = [line for index in range(max(0, len(lines) - 2 * _KEPT), len(lines)) if (line := lines[index]).strip()]
    return len(last) >= _KEPT and all(map(is_number_row, last[-_KEPT:]))


def shortened(lines: Iterable[str]) -> list[str]:
    """Returns the lines, with blocks of number rows shortened."""
    result: list[str] = []
    extend_shortened(result, lines)
    return result


def omitted_rows(line: str) -> int:
    """Returns the number of rows for which the line stands; 0 if it is an ordinary one."""
    match = _MARKER.match(line)
    return int(match["count"]) if match else 0


def _marker(count: int) -> str:
    return f"… {count} more row{'' if count == 1 else 's'} of numbers"
