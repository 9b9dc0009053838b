"""`tarragon down`: ends the embedded cluster and everything that runs in it; what is stored stays."""

from __future__ import annotations

import asyncio

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.cli.session import client, require_local
from tarragon.cli.settings import Command, Settings, home
from tarragon.cli.words import count
from tarragon.cluster.errors import ApiError
from tarragon.cluster.port import Selection
from tarragon.kube.core import PODS

_RUNNING = Selection(fields="status.phase=Running")


@click.command("down", cls=Command)
@click.pass_obj
def command(settings: Settings) -> None:
    """End the local cluster and all that runs in it. Jobs, logs and volumes stay for the next start."""
    require_local(settings)
    asyncio.run(_down(SystemClock()))


async def _down(clock: Clock) -> None:
    from tarragon.localcluster.daemon import END_PODS, running, stop

    place = home()
    server = await running(place)
    replicas = 0
    if server is not None:
        try:
            async with client(place, server.url) as http:
                replicas = len((await http.list(PODS, _RUNNING)).items)
        except ApiError:
            replicas = 0
    ended = await stop(place, clock, END_PODS)
    if ended is None:
        click.echo(f"The local cluster in {place.folder} does not run.", err=True)
        return
    what = f" and {count(replicas, 'pod')}" if replicas else ""
    click.echo(f"Ended the local cluster in {place.folder}: process {ended.pid}{what}.", err=True)
    click.echo("Jobs, logs and volumes are kept; the next command that needs it starts it again.", err=True)
