"""Sets of indexes as text such as `0-3,5`, so that ten thousand fit into a status."""

from __future__ import annotations

import re
from collections.abc import Iterable

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def format_ranges(indexes: Iterable[int], *, shortest_range: int = 2) -> str:
    """`{0, 1, 2, 5}` -> `0-2,5`. Fewer consecutive indexes than `shortest_range` are written one by one."""
    runs: list[tuple[int, int]] = []
    for index in sorted(set(indexes)):
        if runs and runs[-1][1] == index - 1:
            runs[-1] = (runs[-1][0], index)
        else:
            runs.append((index, index))
    return ",".join(_format_run(first, last, shortest_range) for first, last in runs)


def _format_run(first: int, last: int, shortest_range: int) -> str:
    if last - first + 1 < shortest_range:
        return ",".join(map(str, range(first, last + 1)))
    return str(first) if first == last else f"{first}-{last}"


def parse_ranges(text: object, at_most: int) -> frozenset[int]:
    """Parse what `format_ranges` wrote. Raises ValueError or TypeError for anything else.

    Raises ValueError for more than `at_most` indexes, too: users can edit a status, and `0-999999999` would exhaust the
    memory.
    """
    if not isinstance(text, str):
        raise TypeError("index ranges must be a string such as 0-3,5")
    found: set[int] = set()
    left = at_most
    for part in filter(None, text.split(",")):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not an index range; write for example 0-3,5")
        first, last = int(match[1]), int(match[2] or match[1])
        left -= 1 + max(0, last - first)
        if left < 0:
            raise ValueError(f"more than {at_most} indexes")
        found.update(range(first, last + 1))
    return frozenset(found)
