"""`tarragon operator`: keeps the jobs of any Kubernetes cluster, from inside of it or from anywhere else."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tarragon.base.clock import SystemClock
from tarragon.cli import operating
from tarragon.cli.durations import seconds_option
from tarragon.cli.grouping import pod_groups_option
from tarragon.cli.ordering import ordering_options, ruled
from tarragon.cli.settings import Command, Settings, is_namespace, logs_option
from tarragon.cli.whose import access, cluster_options

if TYPE_CHECKING:
    from tarragon.cluster.lease import Terms

LOST = 1
"""The exit code of an operator that has lost its lease: whoever started it starts it again."""


@click.command("operator", cls=Command)
@cluster_options
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    metavar="NAMESPACE",
    multiple=True,
    help="only jobs of this namespace; may be given several times",
)
@click.option(
    "--scheduler",
    metavar="NAME",
    default="tarragon",
    show_default=True,
    help="jobs with another schedulerName in their pods are placed by that one",
)
@pod_groups_option
@ordering_options
@click.option(
    "--placement",
    type=click.Choice(["direct", "affinity"]),
    default="direct",
    show_default=True,
    help="`direct`: pods name their node; `affinity`: kube-scheduler binds them to the node that was chosen",
)
@seconds_option("--patience", 60.0, "a gang of which pods can't be made or bound for so long gives its places back")
@seconds_option("--start-patience", 300.0, "the same for one whose pods are there and can't start: images, volumes")
@click.option(
    "--cluster-domain", metavar="DOMAIN", help="how names of services end: cluster.local; by default with .svc"
)
@click.option(
    "--leader-elect/--no-leader-elect",
    default=True,
    show_default=True,
    help="agree by a Lease with other operators about who acts",
)
@click.option("--lease-namespace", metavar="NAMESPACE", help="where the Lease is; by default where the operator is")
@click.option("--lease-name", metavar="NAME", default="tarragon", show_default=True, help="of the Lease")
@click.option("--identity", metavar="NAME", help="who holds the Lease; must be this process's alone")
@seconds_option("--lease-duration", 15.0, "a Lease that is not renewed for so long is anybody's")
@seconds_option("--renew-deadline", 10.0, "a leader that could not renew for so long ends")
@seconds_option("--retry-period", 2.0, "between two renewals")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="of /healthz, /readyz and /metrics; by default :8080 in a pod, 127.0.0.1:8080 elsewhere; `off`: nowhere",
)
@click.option("--log-format", type=click.Choice(["json", "text"]), help="by default text on a terminal, else json")
@logs_option
@operating.accelerators_option
@click.option("--adopt", is_flag=True, help="keep the jobs that another training operator keeps, or has begun, too")
@seconds_option("--grace", 20.0, "for the writes that have begun, when it is told to end")
@click.pass_obj
def command(
    settings: Settings,
    *,
    file: Path | None,
    context: str | None,
    namespaces: tuple[str, ...],
    scheduler: str,
    pod_groups: Mapping[str, str],
    policy: str,
    queues: Path | None,
    aged: float,
    idle: float,
    cool_down: float,
    placement: str,
    patience: float,
    start_patience: float,
    cluster_domain: str | None,
    leader_elect: bool,
    lease_namespace: str | None,
    lease_name: str,
    identity: str | None,
    lease_duration: float,
    renew_deadline: float,
    retry_period: float,
    listen: str | None,
    log_format: str | None,
    logs_of_jobs: str,
    config_file: Path | None,
    adopt: bool,
    grace: float,
) -> None:
    """Keep the jobs of a Kubernetes cluster until SIGTERM or Ctrl-C.

    Any number of operators may run for one cluster: one acts, the others stand by and take over. One that loses the
    Lease ends with exit code 1. Runs in a pod, or anywhere else with a kubeconfig.
    """
    from tarragon.base import logs
    from tarragon.cluster.lease import Claim, Terms
    from tarragon.kube.meta import Key
    from tarragon.operator.process import serve
    from tarragon.operator.run import Options
    from tarragon.operator.settings import ProcessSettings
    from tarragon.plan.logs import Form
    from tarragon.plan.placement import Placement
    from tarragon.plan.step import Settings as PlanSettings
    from tarragon.scheduling.policies import POLICIES

    # `tarragon -n ml operator` means it, too.
    namespaces = namespaces or tuple(filter(None, [settings.given_namespace]))
    _require_namespaces(namespaces)
    terms = _sound(Terms(duration=lease_duration, deadline=renew_deadline, retry=retry_period))
    where = access(settings, file, context, operating.kubeconfig(os.environ))
    claim = Claim(
        key=Key(lease_namespace or operating.lease_namespace(os.environ) or where.namespace, lease_name),
        identity=identity or operating.identity(os.environ),
        terms=terms,
    )
    domain = operating.cluster_domain(os.environ) if cluster_domain is None else cluster_domain
    plan = PlanSettings(
        scheduler=scheduler,
        pod_groups=pod_groups,
        placement=Placement(placement),
        patience=patience,
        start_patience=start_patience,
        cluster_domain=domain,
        logs=Form(logs_of_jobs),
        accelerators=operating.accelerators(config_file),
        namespaces=tuple(dict.fromkeys(namespaces)),
        adopts=adopt,
    )
    wanted = ProcessSettings(
        options=Options(
            settings=plan,
            policy=POLICIES[policy],
            rules=ruled(queues, aged, idle, cool_down),
            # Without the whole cluster nothing is placed, and nobody waits for a place.
            published_in="" if plan.namespaces else claim.key.namespace,
        ),
        claim=claim if leader_elect else None,
        listen=operating.listening(listen, os.environ),
        grace=grace,
        adopt=adopt,
    )
    form = log_format or ("text" if sys.stderr.isatty() else "json")
    logs.configure("text" if form == "text" else "json", "debug" if settings.is_verbose else "info", sys.stderr)
    if not asyncio.run(serve(where.server, SystemClock(), wanted)):
        raise click.exceptions.Exit(LOST)


def _require_namespaces(names: tuple[str, ...]) -> None:
    for name in names:
        if not is_namespace(name):
            raise click.BadParameter(f"{name!r} is no name of a namespace", param_hint="--namespace")


def _sound(terms: Terms) -> Terms:
    if terms.fault:
        raise click.UsageError(terms.fault)
    return terms
