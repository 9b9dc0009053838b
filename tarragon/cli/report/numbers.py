"""The numbers that a training ends with, read from its log: the pairs of the last line with `done:`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_DONE = re.compile(r"\bdone:", re.IGNORECASE)
_PAIR = re.compile(r"([A-Za-z_][\w./-]*)\s*[=:]\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?%?)(?![\w.])")
_FIRST = ("accuracy", "loss")
_MOST = 3


def numbers(lines: Sequence[str]) -> list[tuple[str, str]]:
    """At most three, accuracy and loss before others, each as the program wrote it."""
    done = next((line for line in reversed(lines) if _DONE.search(line)), "")
    return _chosen(_PAIR.findall(_DONE.split(done, maxsplit=1)[-1]) if done else [])


def pairs(line: str) -> list[tuple[str, str]]:
    """At most three of the pairs of a line that tell how well it goes: accuracies, losses."""
    found = _PAIR.findall(line)
    return _chosen((name, value) for name, value in found if any(word in name.lower() for word in _FIRST))


def _chosen(found: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    def rank(pair: tuple[str, str]) -> int:
        return next((place for place, word in enumerate(_FIRST) if word in pair[0].lower()), len(_FIRST))

    return sorted(found, key=rank)[:_MOST]
