"""`tarragon operator`: keeps the jobs of any Kubernetes cluster, from inside of it or from anywhere else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tarragon.base.clock import SystemClock
from tarragon.cli.operator import surroundings
from tarragon.cli.operator.leader_election import Election, election_options
from tarragon.cli.operator.pod_groups import pod_groups_option
from tarragon.cli.operator.scheduling_options import Ordering, ordering_options
from tarragon.cli.options.durations import seconds_option
from tarragon.cli.options.gathering import gathered
from tarragon.cli.options.settings import Command, Settings, is_namespace, logs_option
from tarragon.cli.targets.cluster_options import Named, access, cluster_options

if TYPE_CHECKING:
    from tarragon.plan.objects.settings import Settings as PlanSettings

LOST = 1
"""The exit code of an operator that has lost its lease: whoever started it starts it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duties:
    """Which jobs the operator keeps, and how: as the command line has it."""

    namespaces: tuple[str, ...]
    scheduler: str
    pod_groups: Mapping[str, str]
    placement: str
    patience: float
    start_patience: float
    cluster_domain: str | None
    logs_of_jobs: str
    config_file: Path | None
    adopt: bool

    def plan(self, namespaces: tuple[str, ...]) -> PlanSettings:
        """For jobs of these namespaces. Raises BadConfig."""
        from tarragon.plan.objects.logs import Form
        from tarragon.plan.objects.placement import Placement
        from tarragon.plan.objects.settings import Settings as PlanSettings

        domain = surroundings.cluster_domain(os.environ) if self.cluster_domain is None else self.cluster_domain
        return PlanSettings(
            scheduler=self.scheduler,
            pod_groups=self.pod_groups,
            placement=Placement(self.placement),
            patience=self.patience,
            start_patience=self.start_patience,
            cluster_domain=domain,
            logs=Form(self.logs_of_jobs),
            accelerators=surroundings.accelerators(self.config_file),
            namespaces=namespaces,
            adopts=self.adopt,
        )


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
@election_options
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="of /healthz, /readyz and /metrics; by default :8080 in a pod, 127.0.0.1:8080 elsewhere; `off`: nowhere",
)
@click.option("--log-format", type=click.Choice(["json", "text"]), help="by default text on a terminal, else json")
@logs_option
@surroundings.accelerators_option
@click.option("--adopt", is_flag=True, help="keep the jobs that another training operator keeps, or has begun, too")
@seconds_option("--grace", 20.0, "for the writes that have begun, when it is told to end")
@click.pass_obj
@gathered("duties", Duties)
def command(
    settings: Settings,
    *,
    cluster: Named,
    duties: Duties,
    ordering: Ordering,
    election: Election,
    listen: str | None,
    log_format: str | None,
    grace: float,
) -> None:
    """Keep the jobs of a Kubernetes cluster until SIGTERM or Ctrl-C.

    Any number of operators may run for one cluster: one acts, the others stand by and take over. One that loses the
    Lease ends with exit code 1. Runs in a pod, or anywhere else with a kubeconfig.
    """
    from tarragon.client.http.user_agent import user_agent
    from tarragon.operator.manager.process import serve
    from tarragon.operator.manager.settings import ProcessSettings

    # `tarragon -n ml operator` means it, too.
    namespaces = _lawful(duties.namespaces or tuple(filter(None, [settings.given_namespace])))
    where = access(settings, cluster, surroundings.kubeconfig(os.environ))
    claim = election.claim(os.environ, where.namespace)
    plan = duties.plan(namespaces)
    wanted = ProcessSettings(
        # Without the whole cluster nothing is placed, and nobody waits for a place.
        options=ordering.options(plan, published_in="" if namespaces else claim.key.namespace),
        claim=claim if election.leader_elect else None,
        listen=surroundings.listening(listen, os.environ),
        grace=grace,
        adopt=plan.adopts,
    )
    surroundings.log(settings, log_format)
    server = replace(where.server, user_agent=user_agent("operator", claim.identity))
    if not asyncio.run(serve(server, SystemClock(), wanted)):
        raise click.exceptions.Exit(LOST)


def _lawful(namespaces: tuple[str, ...]) -> tuple[str, ...]:
    """Each once. Raises BadParameter."""
    for name in namespaces:
        if not is_namespace(name):
            raise click.BadParameter(f"{name!r} is no name of a namespace", param_hint="--namespace")
    return tuple(dict.fromkeys(namespaces))
