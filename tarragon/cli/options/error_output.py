"""What a user sees of an error: what happened, why, what to do. Never a traceback, unless it was asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from tarragon import __version__
from tarragon.base.errors import Problem, TarragonError
from tarragon.base.escaping import escaped, escaped_line


def words(error: TarragonError) -> str:
    """At most three paragraphs: the fact behind `Error:`, the reason and the remedy below it."""
    below = [line for part in (error.why, error.remedy) if part for line in part.splitlines()]
    return "\n".join([f"Error: {escaped_line(error.what)}", *(f"  {line}" for line in below)])


def problems(where: str, found: Sequence[Problem]) -> str:
    """Every Problem of a manifest, each on its line."""
    head = f"Error: {where}: {len(found)} {'problem' if len(found) == 1 else 'problems'}"
    return "\n".join([head, *(f"  {escaped_line(str(problem))}" for problem in found)])


CRASHED = 3
"""Not 1, which the interpreter would take: to scripts that means that `diff` has found a difference."""


def bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> NoReturn:
    """For sys.excepthook: what nobody foresaw. The trace goes to a file, so that it can be sent to somebody."""
    import traceback

    text = "".join(traceback.format_exception(kind, error, trace))
    told = f"{kind.__name__}: {error}".splitlines()[0]
    try:
        remedy = f"Please report it with the file {_saved(text)}"
    except OSError:
        remedy = "Please report it with what the same command says when it is given -v"
    sys.stderr.write(words(TarragonError(f"this is a bug in tarragon: {told}", remedy=remedy)) + "\n")
    if is_verbose(sys.argv):
        sys.stderr.write(text)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    sys.stderr.flush()
    os._exit(CRASHED)


def is_verbose(args: Sequence[str]) -> bool:
    """Whether a traceback was asked for. Looked up here, because what went wrong may be the parsing itself."""
    return "-v" in args or "--verbose" in args or bool(os.environ.get("TARRAGON_VERBOSE"))


def _saved(text: str) -> Path:
    import platform

    from tarragon.base.clock import SystemClock
    from tarragon.cli.options.settings import home
    from tarragon.localcluster.home.home import make_private, write_private

    folder = home().folder / "crashes"
    make_private(folder)
    path = folder / f"{SystemClock().now():%Y%m%d-%H%M%S}-{os.getpid()}.txt"
    facts = f"tarragon {__version__}, Python {platform.python_version()}, {platform.platform()}\n{sys.argv}\n\n"
    write_private(path, escaped(facts + text).encode())
    return path
