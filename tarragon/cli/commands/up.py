"""`tarragon up`: runs the embedded cluster in the foreground."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tarragon.base.clock import SystemClock
from tarragon.cli.operator import process_environment
from tarragon.cli.operator.progress_serving import embedded_progress
from tarragon.cli.operator.scheduling_options import SchedulingOptions, scheduling_options
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand, embedded_home, logs_option
from tarragon.cli.targets.embedded_nodes import NodeFlag, node_settings, parse_node
from tarragon.cli.targets.resolving import require_local

if TYPE_CHECKING:
    from tarragon.base.clock import Clock
    from tarragon.client.port import Client
    from tarragon.kube.core import Pod
    from tarragon.localcluster.home.home import Home
    from tarragon.localcluster.home.lock import ServerInfo
    from tarragon.operator.manager.operator import OperatorOptions
    from tarragon.plan.objects.accelerators import Accelerator

IDLE_SECONDS = 600.0
"""A cluster in the background stops after this long without running pods and client requests."""


_IN_BACKGROUND = frozenset({"-d", "--detach", "--background", "--daemon"})
"""How other tools spell that a server is to run in the background."""


class UpCommand(TarragonCommand):
    """Says how the cluster is started in the background, to those who look for an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in _IN_BACKGROUND:
                raise
            hint = "every other command starts the cluster in the background, `tarragon kubeconfig` does nothing else"
            raise click.UsageError(f"no such option: {error.option_name}; {hint}", ctx) from error


@click.command("up", cls=UpCommand)
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path, dir_okay=False), help="also write the kubeconfig to this file"
)
@click.option(
    "--port", metavar="N", type=click.IntRange(1, 65535), help="port of the API server; by default the previous one"
)
@click.option(
    "--node",
    "nodes",
    metavar="NODE",
    type=parse_node,
    multiple=True,
    help="add a node, such as name=a,cpu=8,memory=16Gi,nvidia.com/gpu=4,gpu-memory=16Gi,label:zone=b",
)
@click.option("--without-operator", is_flag=True, help="start the cluster without Tarragon's operator")
@scheduling_options
@logs_option
@process_environment.accelerators_option
@click.option("--stop-when-idle", is_flag=True, hidden=True, help="used by other commands to start the cluster")
@click.pass_obj
def command(
    settings: GlobalOptions,
    *,
    kubeconfig: Path | None,
    port: int | None,
    nodes: Sequence[NodeFlag],
    without_operator: bool,
    scheduling: SchedulingOptions,
    logs_of_jobs: str,
    config_file: Path | None,
    stop_when_idle: bool,
) -> None:
    """Run the local cluster until Ctrl-C. Its jobs keep running, and the next start adopts them.

    Other commands start it in the background if it does not run. Prints one line with `ready` and the kubeconfig once
    it serves. Without --node it has one node, this machine,
    on which CPU requests are relative shares; on nodes given with --node they reserve CPUs.
    """
    from tarragon.cli.targets.extras import LOCAL, require_extra

    require_extra(LOCAL, "the local cluster")
    gc.disable()  # until the server is ready: nothing that is imported is garbage
    with _without_system_authorities():
        import aiohttp  # noqa: F401 - what follows imports it
    from tarragon.cli.targets.crds import prepare_embedded, prepare_without_operator
    from tarragon.localcluster.daemon.cluster import LocalClusterSettings as ClusterSettings
    from tarragon.localcluster.daemon.serving import serve

    require_local(settings, "up")
    wanted = ClusterSettings(
        home=embedded_home(),
        nodes=node_settings(nodes, embedded_home()),
        port=port,
        idle_seconds=IDLE_SECONDS if stop_when_idle else None,
        left_over=_is_left_over,
        kubeconfig=kubeconfig,
        prepare=prepare_without_operator if without_operator else prepare_embedded,
    )
    clock = SystemClock()
    accelerators = process_environment.read_accelerators(config_file)
    if scheduling.queues is not None:
        scheduling.rules()  # a file with mistakes is reported before anything starts
    load = partial(_operator_options, scheduling, logs_of_jobs, accelerators, embedded_home())
    companions = [] if without_operator else [partial(_run_operator, clock=clock, load=load)]
    process_environment.configure_logging(settings, "json" if stop_when_idle else "text")
    asyncio.run(serve(wanted, clock, companions, partial(_ready, kubeconfig or embedded_home().kubeconfig)))


async def _is_left_over(cluster: Client, pod: Pod) -> bool:
    """Imports what reads jobs only here, long after the start, which it would delay."""
    from tarragon.cli.jobview.outlived_jobs import outlives_its_job

    return await outlives_its_job(cluster, pod)


@contextmanager
def _without_system_authorities() -> Iterator[None]:
    """Hide the machine's certificate authorities: aiohttp loads them when it is imported, which takes 40 ms.

    This process verifies only its own certificates, with contexts of its own.
    """
    hidden = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
    before = {name: os.environ.get(name) for name in hidden}
    os.environ.update(hidden)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


async def _run_operator(cluster: Client, clock: Clock, load: Callable[[], OperatorOptions]) -> None:
    """Run the operator. It is imported here, which takes half a second, while clients can already connect."""
    options = await asyncio.to_thread(load)
    from tarragon.operator.manager.operator import run

    gc.freeze()  # what was imported is never garbage
    await run(cluster, clock, options)


def _operator_options(
    scheduling: SchedulingOptions, logs_of_jobs: str, accelerators: Mapping[str, Accelerator], home: Home
) -> OperatorOptions:
    from tarragon.operator.log_reading.log_reader import EMBEDDED_LOG_READING
    from tarragon.plan.config.published import EMBEDDED_NAMESPACE
    from tarragon.plan.objects.logs import LogFormat
    from tarragon.plan.objects.settings import OperatorSettings as PlanSettings

    plan = PlanSettings(log_format=LogFormat(logs_of_jobs), accelerators=accelerators, shares_cores=True)
    return replace(
        scheduling.operator_options(plan, EMBEDDED_NAMESPACE),
        log_reading=EMBEDDED_LOG_READING,
        progress=embedded_progress(home),
    )


def _ready(kubeconfig: Path, server: ServerInfo) -> None:
    click.echo(f"ready  {server.url}  kubeconfig {kubeconfig}")
    sys.stdout.flush()
