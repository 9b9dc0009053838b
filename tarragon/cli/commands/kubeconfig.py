"""`tarragon kubeconfig`: prints the path of the embedded cluster's kubeconfig."""

from __future__ import annotations

import asyncio

import click

from tarragon.base.clock import SystemClock
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand, embedded_home
from tarragon.cli.targets.resolving import require_local


@click.command("kubeconfig", cls=TarragonCommand)
@click.pass_obj
def command(settings: GlobalOptions) -> None:
    """Print the path of the local cluster's kubeconfig, and start the cluster if it is not running.

    \b
    export KUBECONFIG=$(tarragon kubeconfig)
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    from tarragon.localcluster.daemon.background import ensure_running

    require_local(settings, "kubeconfig")
    asyncio.run(ensure_running(embedded_home(), SystemClock()))
    click.echo(embedded_home().kubeconfig)
