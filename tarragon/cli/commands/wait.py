"""`tarragon wait`: returns when a job has ended, with its result as exit code."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tarragon.cli.options.arguments import duration
from tarragon.cli.options.formats import TEXTS
from tarragon.cli.options.settings import Command, Settings
from tarragon.cli.targets.completion import complete_job

STATES = ("created", "waiting", "starting", "running", "restarting", "suspended", "succeeded", "failed", "deleted")
"""What may be waited for, each in the word that `list` shows."""


@click.command("wait", cls=Command)
@click.argument("name", metavar="JOB", shell_complete=complete_job)
@click.option(
    "--for",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    metavar="STATE",
    help="return with 0 when it is in one of these states, in the words of `list`: --for running --for failed",
)
@click.option(
    "--timeout",
    "limit",
    type=duration,
    metavar="DURATION",
    help="give up after that long (90, 5m, 2h) with exit code 101",
)
@click.option("-o", "--output", "form", type=click.Choice(list(TEXTS)), help="the result for programs")
@click.pass_obj
def command(settings: Settings, name: str, states: Sequence[str], limit: float | None, form: str | None) -> int:
    """Return when JOB has ended, however it did, or is in a state of --for. Without --timeout it waits for ever.

    \b
    States: created waiting starting running restarting suspended succeeded
    failed deleted
    Exit codes: 0 succeeded, or it is in a state of --for; 100 failed,
    101 not finished in time, left by Ctrl-C, or ended without that state;
    102 no such job, 103 deleted or suspended, 104 evicted,
    143 or 129 ended by SIGTERM or SIGHUP
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    import asyncio

    from tarragon.cli.follow.waiting import wait

    return asyncio.run(wait(settings, name, states, limit, form))
