"""`tarragon resume`: lets a suspended job go on, from the end of the queue."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tarragon.cli.jobs.selection import choice, choice_options
from tarragon.cli.options.arguments import patience_options, waited
from tarragon.cli.options.settings import Command, Settings


@click.command("resume", cls=Command)
@choice_options
@patience_options("--wait", "return when it runs")
@click.pass_obj
def command(
    settings: Settings, *, names: Sequence[str], labels: str, everything: bool, waits: bool, limit: float | None
) -> int:
    """Let a suspended job go on: it queues anew, and its time to run begins anew. JOB as in `get`.

    \b
    Exit codes: 0 all go on, also those that were not suspended; 1 one has ended;
                101 not within --timeout; 102 there was none of a name
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    import asyncio

    from tarragon.base.clock import SystemClock
    from tarragon.cli.jobs.editing import edit_all
    from tarragon.cli.jobs.suspension import RESUME
    from tarragon.cli.targets.resolving import target

    wanted = choice(names, labels, everything=everything)
    patience = waited(waits=waits, limit=limit)
    return asyncio.run(edit_all(target(settings), wanted, RESUME, SystemClock(), patience))
