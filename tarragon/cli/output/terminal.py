"""What may be shown where: colours, a moving picture, or plain lines; decided from facts about the two streams."""

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

from tarragon.base.escaping import escaping

ColorChoice = Literal["auto", "always", "never"]

_ORDINARY = os.terminal_size((80, 24))


class Sink(Enum):
    """Where a stream goes. A pipe may end on the same terminal (`| tee log`), a file never does."""

    TERMINAL = "terminal"
    PIPE = "pipe"
    FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """`is_live`: progress may be drawn and drawn over on stderr; otherwise one line a change."""

    colors_out: bool
    colors_err: bool
    is_live: bool
    shows_logs: bool
    """Whether stdout is the terminal, too: then the logs scroll by above the progress."""


def decide(color: ColorChoice, env: Mapping[str, str], out: Sink, err: Sink) -> Terminal:
    """Pure. NO_COLOR, TERM=dumb and CI as everybody has come to expect; an explicit choice of colour overrides all."""
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


def sink(stream: TextIO) -> Sink:
    """Where that stream of this process goes."""
    try:
        if stream.isatty():
            return Sink.TERMINAL
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return Sink.FILE
    return Sink.FILE if stat.S_ISREG(mode) or stat.S_ISCHR(mode) else Sink.PIPE


def escape_output() -> None:
    """Once, at the start of a program: nothing but text and our own styles gets to stdout and stderr from now on.

    What the encoding has no characters for is escaped as well. click writes past a stream in ASCII: it gets UTF-8.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, TextIOWrapper):  # None, if whoever started us has closed it
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding="utf-8" if is_ascii else None, errors="backslashreplace")
            setattr(sys, name, escaping(stream))


def here(color: ColorChoice) -> Terminal:
    """Of this process, at this moment."""
    return decide(color, os.environ, sink(sys.stdout), sink(sys.stderr))


def size(stream: TextIO) -> os.terminal_size:
    """Columns and lines of the terminal that the stream goes to, now: people drag windows."""
    try:
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return _ORDINARY
    return found if found.columns and found.lines else _ORDINARY
