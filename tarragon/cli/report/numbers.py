"""The metrics in a training's log, such as accuracy and loss."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tarragon.cli.output.log_lines import last_state

_DONE = re.compile(r"\bdone:", re.IGNORECASE)
_PAIR = re.compile(
    r"(?<![\w./-])(?P<name>[A-Za-z_][\w./-]{0,80})(?:\s*[=:]\s*|(?P<gap>(?<=(?i:loss))\s+|(?<=(?i:accuracy))\s+))"
    r"(?P<value>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?%?)(?![\w.])(?(gap)(?!-\d|\s*(?:/\d|(?:of|times)\b)))"
)
"""`accuracy=0.9`, `loss: 0.3`, and `loss 0.3` as in the line that the documentation suggests, but not `loss 3 of 5`."""
_FIRST = ("accuracy", "loss")
_MOST = 3


def final_metrics(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Returns at most three metrics of the last line with `done:`, as written, accuracy and loss first.

    Without such a line, it is the last one with an accuracy or a loss.
    """
    done = next((line for line in reversed(lines) if _DONE.search(line)), "")
    if done:
        return _chosen(_pairs(_DONE.split(done, maxsplit=1)[-1]))
    return next((found for line in reversed(lines) if (found := metrics_of_line(last_state(line)))), [])


def metrics_of_line(line: str) -> list[tuple[str, str]]:
    """Returns at most three accuracies and losses of a line."""
    return reported_metrics(dict(_pairs(line)))


def reported_metrics(metrics: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns at most three accuracies and losses that a program reported."""
    return _chosen((name, value) for name, value in metrics.items() if any(word in name.lower() for word in _FIRST))


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(found["name"], found["value"]) for found in _PAIR.finditer(text)]


def _chosen(found: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    def rank(pair: tuple[str, str]) -> int:
        return next((place for place, word in enumerate(_FIRST) if word in pair[0].lower()), len(_FIRST))

    return sorted(found, key=rank)[:_MOST]
