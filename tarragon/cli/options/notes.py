"""Prints what users may miss, on stderr: notes, warnings of the API server, suggested commands. `--quiet` omits it."""

from __future__ import annotations

from collections.abc import Iterable

import click

from tarragon.base.escaping import escaped_line
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.output.prose import print_message


def is_quiet() -> bool:
    """Whether the running command was called with --quiet. click keeps its options in the context of this thread."""
    context = click.get_current_context(silent=True)
    return context is not None and isinstance(context.obj, GlobalOptions) and context.obj.is_quiet


def print_note(text: str) -> None:
    """Prints a note on stderr, unless the command is quiet."""
    if text and not is_quiet():
        print_message(text)


def print_notes(texts: Iterable[str]) -> None:
    for text in texts:
        print_note(text)


def print_warning(text: str) -> None:
    """Prints a warning of the API server, as those of our own."""
    print_note(f"warning: {escaped_line(text)}")
