"""Waits for the selected jobs: the work of `tarragon wait`."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.cli.follow.awaiting import WaitGoal
from tarragon.cli.follow.waiting import wait_and_report
from tarragon.cli.jobs.selection import JobSelection, select_jobs
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.targets.resolving import resolve_target


async def wait_command(
    settings: GlobalOptions, selection: JobSelection, states: Sequence[str], limit: float | None, form: str | None
) -> int:
    """Waits for the selected jobs. Raises NoSuchJob, before it waits, if one of them does not exist."""
    target = resolve_target(settings)
    async with target.reading() as reader:
        jobs, missing = await select_jobs(reader, selection, target.namespace)
    if missing:
        raise missing[0]
    wanted = WaitGoal(states=[state.lower() for state in states], limit=limit)
    return await wait_and_report(target, jobs, wanted, form)
