"""The colours of the command line. A colour only repeats what a word beside it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType

from tarragon.base.escaping import STYLE_ESCAPE

Paint = Callable[[str, str], str]
"""`paint(text, color)` returns the text in that colour, or unchanged."""

_CODES = MappingProxyType(
    {
        "red": "31",
        "green": "32",
        "yellow": "33",
        "blue": "34",
        "magenta": "35",
        "cyan": "36",
        "bold": "1",
        "dim": "2",
        "reverse": "7",
    }
)

STATES = MappingProxyType(
    {
        "Created": "yellow",
        "Waiting": "yellow",
        "Starting": "yellow",
        "Pending": "yellow",
        "Restarting": "yellow",
        "Suspended": "yellow",
        "Ending": "yellow",
        "Stopping": "yellow",
        "Interrupted": "yellow",
        "Running": "cyan",
        "Succeeded": "green",
        "Failed": "red",
        "Stopped": "dim",
        "Deleted": "dim",
    }
)

REPLICA_TYPES = MappingProxyType(
    {
        "chief": "magenta",
        "master": "magenta",
        "launcher": "magenta",
        "ps": "blue",
        "worker": "cyan",
        "evaluator": "yellow",
    }
)

RESET = f"{STYLE_ESCAPE}[0m"
ESCAPES = re.compile(re.escape(STYLE_ESCAPE) + r"\[[0-9;]*m")
"""The escapes that `colored` puts before and after a text."""


def colored(text: str, color: str) -> str:
    """Returns the text in that colour; unchanged if the colour is unknown or empty."""
    code = _CODES.get(color)
    return f"{STYLE_ESCAPE}[{code}m{text}{RESET}" if code and text else text


def uncolored(text: str, color: str) -> str:  # noqa: ARG001 - the Paint for output without colours
    return text


def painter(*, colors: bool) -> Paint:
    return colored if colors else uncolored


def without_colors(text: str) -> str:
    """Returns the text without the escapes that `colored` added."""
    return ESCAPES.sub("", text)
