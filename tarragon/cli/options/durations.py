"""Options that take a number of seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

import click

YEAR = 365 * 24 * 60 * 60

P = ParamSpec("P")


def seconds(text: str | float) -> float:
    """Parses seconds from 0 to one year: adding much more to the current time would overflow a datetime."""
    try:
        found = float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number of seconds; use for example 30 or 0.5") from None
    if not 0 <= found <= YEAR:  # also rejects `nan`
        raise click.BadParameter(f"{text} is not between 0 and {YEAR} seconds (one year)")
    return found


def seconds_option(flag: str, default: float, text: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    return click.option(flag, metavar="SECONDS", type=seconds, default=default, show_default=True, help=text)
