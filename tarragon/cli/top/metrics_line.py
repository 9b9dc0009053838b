"""Extracts the training progress from log lines: epochs, steps and metrics. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tarragon.cli.report.numbers import metrics_of_line

_COUNTERS = re.compile(
    r"\b(?P<name>epoch|(?:global[_ ])?step|iteration)s?\s*[#:=]?\s*(?P<number>\d+(?:\s?/\s?\d+)?)(?![.\d])",
    re.IGNORECASE,
)


def training_progress(lines: Iterable[str]) -> str:
    """Return the numbers of the newest line that has any: `epoch 3/10  loss 0.213  accuracy 0.957`; else empty."""
    for line in reversed(list(lines)):
        if numbers := _numbers(line):
            return numbers
    return ""


def _numbers(line: str) -> str:
    counters = {match["name"].lower(): match["number"].replace(" ", "") for match in _COUNTERS.finditer(line)}
    return "  ".join(f"{name} {value}" for name, value in {**counters, **dict(metrics_of_line(line))}.items())
