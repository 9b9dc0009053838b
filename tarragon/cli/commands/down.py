"""`tarragon down`: stops the embedded cluster and its pods; stored objects, logs and volumes are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.jobs import list_jobs
from tarragon.cli.options.notes import print_note
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand, embedded_home
from tarragon.cli.output.words import count, joined
from tarragon.cli.targets.resolving import require_local
from tarragon.client.port import ALL_OBJECTS
from tarragon.localcluster.home.home import Home


@click.command("down", cls=TarragonCommand)
@click.pass_obj
def command(settings: GlobalOptions) -> None:
    """Stop the local cluster and its pods. Jobs, logs and volumes are kept for the next start."""
    require_local(settings, "down")
    asyncio.run(_down(embedded_home(), SystemClock()))


async def _down(home_folder: Home, clock: Clock) -> None:
    from tarragon.localcluster.daemon.background import STOP_PODS_SIGNAL, stop
    from tarragon.localcluster.daemon.nodes import stop_leftover_pods

    containers = _running_containers(home_folder)
    ended = await stop(home_folder, clock, STOP_PODS_SIGNAL)
    if home_folder.folder.is_dir():
        # A server that had to be killed leaves containers behind.
        await stop_leftover_pods(home_folder, clock)
    stopped = [f"process {ended.pid}"] if ended is not None else []
    stopped += [count(containers, "container")] if containers else []
    if not stopped:
        print_note(f"The local cluster in {home_folder.folder} is not running.")
        return
    print_note(f"Stopped the local cluster in {home_folder.folder}: {' and '.join(stopped)}.")
    unfinished = await _unfinished(home_folder)
    if unfinished:
        print_note(f"Unfinished jobs, restarted at the next start: {joined(unfinished)}.")


def _running_containers(home_folder: Home) -> int:
    """Count the running containers by their state files, so that those of a killed server are included."""
    from tarragon.localcluster.kubelet.shim.shim_client import state_of

    runs = [path.parent for path in home_folder.nodes.glob("*/pods/*/runs/*/*/state.json")]
    states = [state_of(run) for run in runs]
    return sum(state is not None and not state.has_ended for state in states)


async def _unfinished(home_folder: Home) -> Sequence[str]:
    from tarragon.localcluster.registry.offline import OfflineCluster

    with suppress(TarragonError):
        stored = OfflineCluster.open(home_folder.store_path)
        try:
            jobs = await list_jobs(stored, ALL_OBJECTS)
        finally:
            stored.close()
        return [job.name for job in jobs if not job.status.phase.is_final]
    return []
