"""`tarragon top`: jobs, replicas and nodes on one page of the terminal, live."""

from __future__ import annotations

import asyncio
import os
import sys

import click

from tarragon.base.clock import SystemClock
from tarragon.base.errors import TarragonError
from tarragon.cli.options.settings import Command, Settings
from tarragon.cli.targets.resolving import target


class NoTerminal(TarragonError):
    """Exit code 2: it was called where it can't work."""

    exit_code = 2


@click.command("top", cls=Command)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="of all namespaces")
@click.pass_obj
def command(settings: Settings, everywhere: bool) -> None:
    """Jobs, replicas and nodes as they are now; logs, events and reasons by one key. ? shows the keys."""
    refuse_without_terminal(is_terminal=sys.stdin.isatty() and sys.stdout.isatty(), kind=os.environ.get("TERM", ""))
    from tarragon.cli.top.app import App
    from tarragon.cli.top.watches import Scope

    where = target(settings)

    async def run() -> None:
        await App(settings, where, SystemClock(), Scope("" if everywhere else where.namespace)).run()

    asyncio.run(run())


def refuse_without_terminal(*, is_terminal: bool, kind: str) -> None:
    """Raises NoTerminal where a page can't be drawn over."""
    if is_terminal and kind not in {"", "dumb"}:
        return
    why = f"TERM is {kind or 'not set'}" if is_terminal else "its input or its output is a pipe or a file"
    raise NoTerminal(
        "`top` draws on a whole terminal, and this is none",
        why=why,
        remedy="`list --watch` tells of every change in a line of its own",
    )
