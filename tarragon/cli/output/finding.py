"""One thing that was found out, as a line with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tarragon.cli.output.style import Paint

_COLORS = {"ok": "green", "warning": "yellow", "error": "red"}
_LABEL = 7
_TOPIC = 11


@dataclass(frozen=True, slots=True)
class Finding:
    """One line; the remedy is empty where all is well. An error is what makes jobs impossible."""

    level: Literal["ok", "warning", "error"]
    topic: str
    text: str
    remedy: str = ""


def told(finding: Finding, paint: Paint) -> Iterator[str]:
    label = paint(finding.level, _COLORS[finding.level]) + " " * (_LABEL - len(finding.level))
    yield f"{label}  {finding.topic:<{_TOPIC}} {finding.text}"
    yield from (f"{'':{_LABEL + _TOPIC + 4}}{line}" for line in finding.remedy.splitlines())
