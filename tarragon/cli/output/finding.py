"""The result of one check, as a line with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tarragon.cli.output.style import Paint

_COLORS = {"ok": "green", "warning": "yellow", "error": "red"}
_LABEL_WIDTH = 7
_TOPIC_WIDTH = 11
TEXT_COLUMN = _LABEL_WIDTH + _TOPIC_WIDTH + 3
"""Where the text of a finding begins, below which its remedy is."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. An error prevents jobs from running. The remedy is empty if nothing is wrong."""

    level: Literal["ok", "warning", "error"]
    topic: str
    text: str
    remedy: str = ""


def finding_lines(finding: Finding, paint: Paint) -> Iterator[str]:
    label = paint(finding.level, _COLORS[finding.level]) + " " * (_LABEL_WIDTH - len(finding.level))
    yield f"{label}  {finding.topic:<{_TOPIC_WIDTH}} {finding.text}"
    yield from (f"{'':{_LABEL_WIDTH + _TOPIC_WIDTH + 4}}{line}" for line in finding.remedy.splitlines())
