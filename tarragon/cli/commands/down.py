"""`tarragon down`: ends the embedded cluster and everything that runs in it; what is stored stays."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.jobs import all_jobs
from tarragon.cli.options.settings import Command, Settings, home
from tarragon.cli.output.words import count, listed
from tarragon.cli.targets.resolving import require_local
from tarragon.client.port import EVERYTHING
from tarragon.localcluster.home.home import Home


@click.command("down", cls=Command)
@click.pass_obj
def command(settings: Settings) -> None:
    """End the local cluster and all that runs in it. Jobs, logs and volumes stay for the next start."""
    require_local(settings, "down")
    asyncio.run(_down(home(), SystemClock()))


async def _down(place: Home, clock: Clock) -> None:
    from tarragon.localcluster.daemon.daemon import END_PODS, stop
    from tarragon.localcluster.daemon.nodes import end_leftovers

    containers = _running(place)
    ended = await stop(place, clock, END_PODS)
    if place.folder.is_dir():
        # Also after a server that had to be killed.
        await end_leftovers(place, clock)
    what = [f"process {ended.pid}"] if ended is not None else []
    what += [count(containers, "container")] if containers else []
    if not what:
        click.echo(f"The local cluster in {place.folder} does not run.", err=True)
        return
    click.echo(f"Ended the local cluster in {place.folder}: {' and '.join(what)}.", err=True)
    unfinished = await _unfinished(place)
    if unfinished:
        click.echo(f"Not finished, and begun again at the next start: {listed(unfinished)}.", err=True)


def _running(place: Home) -> int:
    """From what lies on the disk, so that those are counted, too, that a killed server has left behind."""
    from tarragon.localcluster.kubelet.shim.shim_client import state_of

    runs = [path.parent for path in place.nodes.glob("*/pods/*/runs/*/*/state.json")]
    states = [state_of(run) for run in runs]
    return sum(state is not None and not state.has_ended for state in states)


async def _unfinished(place: Home) -> Sequence[str]:
    from tarragon.localcluster.registry.client import OnDisk

    with suppress(TarragonError):
        stored = OnDisk.open(place.store)
        try:
            jobs = await all_jobs(stored, EVERYTHING)
        finally:
            stored.close()
        return [job.name for job in jobs if not job.status.phase.is_final]
    return []
