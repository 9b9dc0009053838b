"""Prints errors: what happened, why, and what to do. A traceback is shown only with -v."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from tarragon import __version__
from tarragon.base.errors import TarragonError
from tarragon.base.escaping import escaped, escaped_line


def error_text(error: TarragonError) -> str:
    """Formats an error: `Error:` and the fact, then the reason and the remedy, indented."""
    below = [line for part in (error.cause, error.remedy) if part for line in part.splitlines()]
    return "\n".join([f"Error: {escaped_line(error.summary)}", *(f"  {line}" for line in below)])


CRASHED = 3
"""The exit code of an internal error. Not Python's 1, by which `diff` says that there are differences."""


def report_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> NoReturn:
    """The sys.excepthook: saves the traceback of an unexpected exception to a file, for a bug report, and exits."""
    import traceback

    text = "".join(traceback.format_exception(kind, error, trace))
    summary = f"{kind.__name__}: {error}".splitlines()[0]
    try:
        remedy = f"Please report it and attach {_saved(text)}"
    except OSError:
        remedy = "Please report it with the output of the same command with -v"
    sys.stderr.write(error_text(TarragonError(f"this is a bug in tarragon: {summary}", remedy=remedy)) + "\n")
    if is_verbose(sys.argv):
        sys.stderr.write(text)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    sys.stderr.flush()
    os._exit(CRASHED)


def is_verbose(args: Sequence[str]) -> bool:
    """Whether the user asked for tracebacks. Read from the raw arguments, because parsing them may be what failed."""
    return "-v" in args or "--verbose" in args or bool(os.environ.get("TARRAGON_VERBOSE"))


def _saved(text: str) -> Path:
    import platform

    from tarragon.base.clock import SystemClock
    from tarragon.cli.options.settings import embedded_home
    from tarragon.localcluster.home.home import create_private_folder, write_private_file

    folder = embedded_home().folder / "crashes"
    create_private_folder(folder)
    path = folder / f"{SystemClock().now():%Y%m%d-%H%M%S}-{os.getpid()}.txt"
    facts = f"tarragon {__version__}, Python {platform.python_version()}, {platform.platform()}\n{sys.argv}\n\n"
    write_private_file(path, escaped(facts + text).encode())
    return path
