"""`tarragon top`: shows jobs, replicas and nodes live in the terminal."""

from __future__ import annotations

import asyncio
import os
import sys

import click

from tarragon.base.clock import SystemClock
from tarragon.base.errors import TarragonError
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand
from tarragon.cli.targets.resolving import resolve_target


class NotATerminal(TarragonError):
    """stdin or stdout is not a terminal that `top` can draw on. Exit code 2."""

    exit_code = 2


@click.command("top", cls=TarragonCommand)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="show jobs in all namespaces")
@click.pass_obj
def command(settings: GlobalOptions, everywhere: bool) -> None:
    """Show jobs, replicas and nodes live, with logs, events and reasons by one key. ? shows the keys."""
    require_terminal(is_terminal=sys.stdin.isatty() and sys.stdout.isatty(), kind=os.environ.get("TERM", ""))
    from tarragon.cli.top.app import App
    from tarragon.cli.top.watches import WatchedNamespace

    where = resolve_target(settings)

    async def run() -> None:
        await App(settings, where, SystemClock(), WatchedNamespace("" if everywhere else where.namespace)).run()

    asyncio.run(run())


def require_terminal(*, is_terminal: bool, kind: str) -> None:
    """Raise NotATerminal unless both ends are a terminal with cursor control."""
    if is_terminal and kind not in {"", "dumb"}:
        return
    why = f"TERM is {kind or 'not set'}" if is_terminal else "stdin or stdout is a pipe or a file"
    raise NotATerminal(
        "`top` needs a terminal",
        why=why,
        remedy="use `list --watch`, which prints one line for every change",
    )
