"""The few colours that the command line has, always beside a word that says the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType

from tarragon.base.escaping import ESC

Paint = Callable[[str, str], str]
"""`paint(text, color)`: the text in that colour, or as it is."""

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

RESET = f"{ESC}[0m"
STYLE = re.compile(re.escape(ESC) + r"\[[0-9;]*m")
"""What `colorful` puts before and behind a text."""


def colorful(text: str, color: str) -> str:
    """An unknown or empty colour leaves the text as it is."""
    code = _CODES.get(color)
    return f"{ESC}[{code}m{text}{RESET}" if code and text else text


def plain(text: str, color: str) -> str:  # noqa: ARG001 - a Paint for where colours are not wanted
    return text


def painter(*, colors: bool) -> Paint:
    return colorful if colors else plain


def without_colors(text: str) -> str:
    """The text that `colorful` was given."""
    return STYLE.sub("", text)
