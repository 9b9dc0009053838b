"""`tarragon suspend`: ends all pods of a job and gives its places back, until it is resumed."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tarragon.cli.jobs.selection import choice, choice_options
from tarragon.cli.options.arguments import patience_options, waited
from tarragon.cli.options.settings import Command, Settings


@click.command("suspend", cls=Command)
@choice_options
@patience_options("--wait", "return when none of its pods is left")
@click.pass_obj
def command(
    settings: Settings, *, names: Sequence[str], labels: str, everything: bool, waits: bool, limit: float | None
) -> int:
    """End all pods of a job and give its places back; `resume` puts it into the queue again. JOB as in `get`.

    What has finished stays on record, and so does the number of restarts. The field is spec.runPolicy.suspend;
    kubeflow.org/v1alpha2, v1beta1 and v1beta2 have none.

    \b
    Exit codes: 0 all are suspended, also those that were before; 1 one has ended;
                101 not within --timeout; 102 there was none of a name
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    import asyncio

    from tarragon.base.clock import SystemClock
    from tarragon.cli.jobs.editing import edit_all
    from tarragon.cli.jobs.suspension import SUSPEND
    from tarragon.cli.targets.resolving import target

    wanted = choice(names, labels, everything=everything)
    patience = waited(waits=waits, limit=limit)
    return asyncio.run(edit_all(target(settings), wanted, SUSPEND, SystemClock(), patience))
