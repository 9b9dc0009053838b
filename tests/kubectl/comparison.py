"""Two transcripts of one script held against each other, and against the differences that are allowed."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.kubectl.transcript import Answer

REAL, EMBEDDED = "real", "embedded"
_SIDES = {"-": REAL, "+": EMBEDDED}


@dataclass
class Allowance:
    """Lines that one side may say alone, in some commands; it keeps account of what was needed of it."""

    reason: str
    commands: Sequence[str]
    lines: dict[str, list[str]]
    needed: set[str] = field(default_factory=set)

    def covers(self, command: str, side: str, line: str) -> bool:
        """Whether the line is allowed; all patterns that say so count as needed."""
        named = [pattern for pattern in self.commands if pattern == command or fnmatch.fnmatchcase(command, pattern)]
        matched = [pattern for pattern in self.lines[side] if re.fullmatch(pattern, line)]
        if not named or not matched:
            return False
        self.needed |= {*named, *(f"{side}: {pattern}" for pattern in matched)}
        return True

    def needless(self) -> Iterator[str]:
        patterns = [*self.commands, *(f"{side}: {pattern}" for side, lines in self.lines.items() for pattern in lines)]
        for pattern in patterns:
            if pattern not in self.needed:
                yield f"{pattern}  ({self.reason})"


def read_allowances(path: Path) -> list[Allowance]:
    return [
        Allowance(one["reason"], one["commands"], {side: one.get(side, []) for side in (REAL, EMBEDDED)})
        for one in yaml.safe_load(path.read_text())
    ]


def not_allowed(real: Sequence[Answer], embedded: Sequence[Answer], allowances: Sequence[Allowance]) -> list[str]:
    """Each difference that nothing allows, readable. Exits of commands are lines, too."""
    differences: list[str] = []
    for theirs, ours in zip(real, embedded, strict=True):
        wrong = [
            f"  {_SIDES[line[0]]:8} {line[2:]}"
            for line in difflib.ndiff(theirs.lines, ours.lines)
            if line[0] in _SIDES and not _is_allowed(theirs.step.name, _SIDES[line[0]], line[2:], allowances)
        ]
        if wrong:
            differences += [f"kubectl {theirs.step.name}", *wrong]
    return differences


def _is_allowed(command: str, side: str, line: str, allowances: Sequence[Allowance]) -> bool:
    asked = [one.covers(command, side, line) for one in allowances]  # all: each must know whether it is needed
    return any(asked)
