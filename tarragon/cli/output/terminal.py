"""Decides what stdout and stderr can show: colours, live progress, or plain lines."""

from __future__ import annotations

import codecs
import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from io import TextIOWrapper
from typing import Literal, TextIO

from tarragon.base.escaping import escaping_stream

ColorChoice = Literal["auto", "always", "never"]

_DEFAULT_SIZE = os.terminal_size((80, 24))


class Sink(Enum):
    """Where a stream goes. A pipe may end on the same terminal (`| tee log`); a file never does."""

    TERMINAL = "terminal"
    PIPE = "pipe"
    FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """What the two streams can show. `is_live`: progress is redrawn on stderr; otherwise each change is one line."""

    colors_out: bool
    colors_err: bool
    is_live: bool
    shows_logs: bool
    """Whether stdout is the terminal too: logs then scroll above the progress."""
    is_quiet: bool = False
    """Whether progress and notes are omitted."""


def terminal_for(color: ColorChoice, env: Mapping[str, str], out: Sink, err: Sink) -> Terminal:
    """Decides by NO_COLOR, TERM=dumb and CI, as usual. An explicit --color overrides them. Pure."""
    is_dumb = env.get("TERM", "") == "dumb"
    in_ci = env.get("CI", "").lower() not in {"", "0", "false"}
    may_color = not is_dumb and not env.get("NO_COLOR")

    def colored(sink: Sink) -> bool:
        return color == "always" or (color == "auto" and may_color and sink is Sink.TERMINAL)

    return Terminal(
        colors_out=colored(out),
        colors_err=colored(err),
        is_live=err is Sink.TERMINAL and out is not Sink.PIPE and not is_dumb and not in_ci,
        shows_logs=out is Sink.TERMINAL,
    )


def sink_of(stream: TextIO) -> Sink:
    """Returns where a stream of this process goes."""
    try:
        if stream.isatty():
            return Sink.TERMINAL
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return Sink.FILE
    return Sink.FILE if stat.S_ISREG(mode) or stat.S_ISCHR(mode) else Sink.PIPE


def escape_output() -> None:
    """Escapes control characters on stdout and stderr from now on. Called once, at the start of the program.

    Characters that the encoding lacks are escaped too. An ASCII stream becomes UTF-8, because click bypasses it.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, TextIOWrapper):  # None if the parent process closed it
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding="utf-8" if is_ascii else None, errors="backslashreplace")
            setattr(sys, name, escaping_stream(stream))


def current_terminal(color: ColorChoice) -> Terminal:
    """Returns what the streams of this process can show now."""
    return terminal_for(color, os.environ, sink_of(sys.stdout), sink_of(sys.stderr))


def size(stream: TextIO) -> os.terminal_size:
    """Returns the current size of the stream's terminal, which may change at any time; 80x24 if it has none."""
    try:
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return _DEFAULT_SIZE
    return found if found.columns and found.lines else _DEFAULT_SIZE
