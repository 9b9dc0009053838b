"""Options that are told a number of seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

import click

YEAR = 365 * 24 * 60 * 60

P = ParamSpec("P")


def seconds(text: str | float) -> float:
    """From 0 to a year: nobody means to wait longer, and what is much longer has no date at its end."""
    try:
        found = float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number of seconds; write for example 30 or 0.5") from None
    if not 0 <= found <= YEAR:  # `nan` is neither
        raise click.BadParameter(f"{text} is not between 0 and {YEAR} seconds, a year")
    return found


def seconds_option(flag: str, default: float, text: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    return click.option(flag, metavar="SECONDS", type=seconds, default=default, show_default=True, help=text)
