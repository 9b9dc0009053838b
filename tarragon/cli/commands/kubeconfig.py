"""`tarragon kubeconfig`: prints the path of the embedded cluster's kubeconfig."""

from __future__ import annotations

import asyncio

import click

from tarragon.base.clock import SystemClock
from tarragon.cli.options.settings import Command, Settings, home
from tarragon.cli.targets.resolving import require_local


@click.command("kubeconfig", cls=Command)
@click.pass_obj
def command(settings: Settings) -> None:
    """Print the path of the local cluster's kubeconfig, and start the cluster if it is not running.

    \b
    export KUBECONFIG=$(tarragon kubeconfig)
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    from tarragon.localcluster.daemon.daemon import ensure_running

    require_local(settings, "kubeconfig")
    asyncio.run(ensure_running(home(), SystemClock()))
    click.echo(home().kubeconfig)
