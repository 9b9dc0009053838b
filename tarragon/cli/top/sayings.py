"""What a training says of how far it is: the numbers in a line of its log. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tarragon.cli.report.numbers import pairs

_COUNTS = re.compile(
    r"\b(?P<name>epoch|(?:global[_ ])?step|iteration)s?\s*[#:=]?\s*(?P<number>\d+(?:\s?/\s?\d+)?)(?![.\d])",
    re.IGNORECASE,
)


def progress(lines: Iterable[str]) -> str:
    """`epoch 3/10  loss 0.213  accuracy 0.957` of the newest line with any of these; empty where there is none."""
    for line in reversed(list(lines)):
        if told := _told(line):
            return told
    return ""


def _told(line: str) -> str:
    counted = {match["name"].lower(): match["number"].replace(" ", "") for match in _COUNTS.finditer(line)}
    return "  ".join(f"{name} {value}" for name, value in {**counted, **dict(pairs(line))}.items())
