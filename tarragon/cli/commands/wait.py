"""`tarragon wait`: waits for jobs and exits with their result."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tarragon.cli.jobs.selection import job_selection, job_selection_options
from tarragon.cli.options.arguments import duration
from tarragon.cli.options.formats import FORMATTERS
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand
from tarragon.cli.options.states import STATES


@click.command("wait", cls=TarragonCommand)
@job_selection_options
@click.option(
    "--for",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    metavar="STATE",
    help="wait for this state, as shown by `list`, and exit with 0; can be repeated",
)
@click.option(
    "--timeout",
    "limit",
    type=duration,
    metavar="DURATION",
    help="stop waiting after this long (90, 5m, 2h), with exit code 101",
)
@click.option("-o", "--output", "form", type=click.Choice(list(FORMATTERS)), help="output format of the result")
@click.pass_obj
def command(
    settings: GlobalOptions,
    *,
    names: Sequence[str],
    labels: str,
    everything: bool,
    states: Sequence[str],
    limit: float | None,
    form: str | None,
) -> int:
    """Wait until the jobs end, or reach a state of --for. Without --timeout there is no limit.

    \b
    States: created waiting starting running restarting suspended succeeded
    failed deleted
    Exit codes: 0 succeeded, or reached a state of --for; 100 failed,
    101 timed out, detached by Ctrl-C, or ended without reaching that state;
    102 not found, 103 deleted or suspended, 104 evicted,
    105 can never start on this machine,
    143 or 129 ended by SIGTERM or SIGHUP. Of several jobs, that of the first
    one, in the given order, that has not succeeded
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    import asyncio

    from tarragon.cli.jobs.waiting import wait_command

    selection = job_selection(names, labels, everything=everything)
    return asyncio.run(wait_command(settings, selection, states, limit, form))
