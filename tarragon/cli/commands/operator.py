"""`tarragon operator`: runs the operator for a Kubernetes cluster, in a pod or on any machine with a kubeconfig."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tarragon import __version__
from tarragon.base.clock import SystemClock
from tarragon.cli.operator import process_environment
from tarragon.cli.operator.job_defaults import job_default_options
from tarragon.cli.operator.leader_election import LeaderElectionOptions, leader_election_options
from tarragon.cli.operator.pod_groups import pod_groups_option
from tarragon.cli.operator.progress_serving import ProgressServingOptions, progress_serving_options
from tarragon.cli.operator.scheduling_options import SchedulingOptions, scheduling_options
from tarragon.cli.options.durations import seconds_option
from tarragon.cli.options.gathering import option_group
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand, is_namespace, logs_option
from tarragon.cli.targets.cluster_options import ClusterFlags, access, cluster_options

if TYPE_CHECKING:
    from tarragon.kube.meta import JsonObject, Key
    from tarragon.plan.objects.gpu_anchors import AnchorSettings
    from tarragon.plan.objects.settings import OperatorSettings as PlanSettings

LEASE_LOST = 1
"""The exit code of an operator that lost its lease; a Deployment restarts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementOptions:
    """The options about which jobs the operator manages, and how, as given on the command line."""

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
    kubectl_delivery_image: str | None
    gpu_anchor_image: str | None

    def plan_settings(self, namespaces: tuple[str, ...]) -> PlanSettings:
        """Return the settings for jobs in these namespaces (all if empty). Raises BadConfig."""
        from tarragon.plan.objects.logs import LogFormat
        from tarragon.plan.objects.placement import Placement
        from tarragon.plan.objects.settings import OperatorSettings as PlanSettings

        domain = process_environment.cluster_domain(os.environ) if self.cluster_domain is None else self.cluster_domain
        return PlanSettings(
            scheduler_name=self.scheduler,
            pod_groups=self.pod_groups,
            placement=Placement(self.placement),
            creation_timeout=self.patience,
            start_timeout=self.start_patience,
            cluster_domain=domain,
            log_format=LogFormat(self.logs_of_jobs),
            accelerators=process_environment.read_accelerators(self.config_file),
            namespaces=namespaces,
            adopts_jobs=self.adopt,
            # The default until the operator has found its own image.
            own_image=f"tarragon:{__version__}",
            delivery_image=self.kubectl_delivery_image or "",
        )

    def gpu_anchors(self, namespace: str) -> AnchorSettings:
        """Return how an operator of that namespace holds GPUs that pods share."""
        from tarragon.plan.objects.gpu_anchors import AnchorSettings

        return AnchorSettings(namespace=namespace, image=self.gpu_anchor_image or self.kubectl_delivery_image or "")

    def own_pod(self, namespace: str) -> Key | None:
        """Return the operator's pod, to read its image from; None if another image is given."""
        return None if self.kubectl_delivery_image else process_environment.own_pod(os.environ, namespace)


@click.command("operator", cls=TarragonCommand)
@click.version_option(
    __version__, message="tarragon %(version)s", help="show the version and exit", allow_from_autoenv=False
)
@cluster_options
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    metavar="NAMESPACE",
    multiple=True,
    help="manage only jobs in this namespace; can be repeated",
)
@click.option(
    "--scheduler",
    metavar="NAME",
    default="tarragon",
    show_default=True,
    help="schedulerName of this operator; jobs with another schedulerName are left to that scheduler",
)
@pod_groups_option
@scheduling_options
@click.option(
    "--placement",
    type=click.Choice(["direct", "affinity"]),
    default="direct",
    show_default=True,
    help="`direct`: set nodeName in pods; `affinity`: let kube-scheduler bind pods to the chosen node",
)
@seconds_option("--patience", 60.0, "requeue a gang whose pods can't be created or bound for this long")
@seconds_option("--start-patience", 300.0, "requeue a gang whose pods can't start (images, volumes) for this long")
@click.option(
    "--cluster-domain",
    metavar="DOMAIN",
    help="DNS domain of Services, such as cluster.local; by default names end in .svc",
)
@click.option(
    "--kubectl-delivery-image",
    metavar="IMAGE",
    help="image with /bin/sh, cp and /usr/local/bin/kubectl for launchers of MPIJobs before v2beta1; by default the "
    "operator's own, without a shell",
)
@click.option(
    "--gpu-anchor-image",
    metavar="IMAGE",
    help="image with /bin/sh for the pods that hold GPUs which others share; by default that of "
    "--kubectl-delivery-image, else the operator's own",
)
@job_default_options
@leader_election_options
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="address of /healthz, /readyz and /metrics, or `off`; by default :8080 in a pod, 127.0.0.1:8080 elsewhere",
)
@click.option(
    "--log-format",
    type=click.Choice(["json", "text"]),
    help="log format; by default text on a terminal, otherwise json",
)
@logs_option
@process_environment.accelerators_option
@click.option(
    "--read-progress-from-logs",
    is_flag=True,
    help="read the progress of elastic jobs that report none from their logs: one request a second at most; "
    "needs `get` of pods/log",
)
@progress_serving_options
@click.option("--adopt", is_flag=True, help="also manage jobs that another training operator manages or has started")
@seconds_option("--grace", 20.0, "time to finish pending writes at shutdown")
@click.pass_obj
@option_group("management", ManagementOptions)
def command(
    settings: GlobalOptions,
    *,
    cluster: ClusterFlags,
    management: ManagementOptions,
    scheduling: SchedulingOptions,
    job_defaults: Mapping[str, JsonObject],
    election: LeaderElectionOptions,
    progress: ProgressServingOptions,
    listen: str | None,
    log_format: str | None,
    read_progress_from_logs: bool,
    grace: float,
) -> None:
    """Run the operator for a Kubernetes cluster until SIGTERM or Ctrl-C.

    Several operators can run for one cluster: one is the leader, the others stand by. An operator that loses its
    Lease ends with exit code 1. Runs in a pod, or on any machine with a kubeconfig.
    """
    from tarragon.cli.targets.extras import OPERATOR, require_extra

    require_extra(OPERATOR, "the operator")
    from tarragon.client.http.user_agent import user_agent
    from tarragon.operator.log_reading.log_reader import CLUSTER_LOG_READING
    from tarragon.operator.manager.process import serve
    from tarragon.operator.manager.settings import ProcessSettings

    # `tarragon -n ml operator` also selects a namespace.
    namespaces = _valid_namespaces(management.namespaces or tuple(filter(None, [settings.explicit_namespace])))
    where = access(settings, cluster, process_environment.kubeconfig(os.environ))
    claim = election.claim(os.environ, where.namespace)
    plan = replace(
        management.plan_settings(namespaces),
        job_defaults=job_defaults,
        gpu_anchors=management.gpu_anchors(claim.key.namespace),
    )
    # An operator of some namespaces schedules no gangs, so it publishes no scheduling configuration.
    options = scheduling.operator_options(plan, published_in="" if namespaces else claim.key.namespace)
    wanted = ProcessSettings(
        options=replace(
            options,
            log_reading=CLUSTER_LOG_READING if read_progress_from_logs else None,
            progress=progress.options(claim.key.namespace),
        ),
        lease_claim=claim if election.leader_elect else None,
        listen=process_environment.listen_address(listen, os.environ),
        shutdown_seconds=grace,
        own_pod=management.own_pod(where.namespace),
        adopt=plan.adopts_jobs,
    )
    process_environment.configure_logging(settings, log_format)
    server = replace(where.rest_config, user_agent=user_agent("operator", claim.identity))
    if not asyncio.run(serve(server, SystemClock(), wanted)):
        raise click.exceptions.Exit(LEASE_LOST)


def _valid_namespaces(namespaces: tuple[str, ...]) -> tuple[str, ...]:
    """Return the namespaces without duplicates. Raises BadParameter."""
    for name in namespaces:
        if not is_namespace(name):
            raise click.BadParameter(f"{name!r} is not a valid namespace name", param_hint="--namespace")
    return tuple(dict.fromkeys(namespaces))
