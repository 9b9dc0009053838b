"""Lays out sentences for the stream that they are printed on: in rows of a terminal, else as they are."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TextIO

import click

from tarragon.cli.output.terminal import Sink, sink_of, size
from tarragon.cli.output.wrapping import UNBOUNDED, wrap_lines


def width_of(stream: TextIO) -> int:
    """Returns the columns of the terminal; what goes to a file or a pipe has no bound."""
    return size(stream).columns if sink_of(stream) is Sink.TERMINAL else UNBOUNDED


def prose_rows(lines: Iterable[str], stream: TextIO) -> Iterator[str]:
    return wrap_lines(lines, width_of(stream))


def print_message(text: str) -> None:
    """Prints a message on stderr."""
    for row in prose_rows(text.split("\n"), sys.stderr):
        click.echo(row, err=True)
