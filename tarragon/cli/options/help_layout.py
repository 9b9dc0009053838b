"""Fits usage and help into a narrow terminal: click takes 50 columns or more, and 30 of them for the options' names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

import click

from tarragon.cli.output.prose import width_of
from tarragon.cli.output.terminal import Sink, sink_of

_MOST = 80
_LEAST = 22
"""Columns in which click can lay out a usage."""
_NARROW = 50
_NARROW_NAMES = 8
"""Columns of the names of options on a narrow terminal: longer ones have rows of their own."""


class NarrowFormatter(click.HelpFormatter):
    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        line = f"{'Usage: ' if prefix is None else prefix}{prog} {args}"
        if len(line) <= self.width:  # click breaks it if fewer than 20 columns are left for the arguments
            self.write(f"{line}\n")
        else:
            super().write_usage(prog, args, prefix)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl(rows, col_max if self.width >= _NARROW else _NARROW_NAMES, col_spacing)


class HelpContext(click.Context):
    formatter_class = NarrowFormatter


def help_width(stream: TextIO) -> int | None:
    """Returns the columns of usage and help on the stream; None for click's own, where it is no terminal."""
    return max(_LEAST, min(width_of(stream), _MOST) - 2) if sink_of(stream) is Sink.TERMINAL else None
