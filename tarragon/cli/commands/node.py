"""`tarragon node`: registers this machine as a node of a Kubernetes cluster and runs its pods as processes."""

from __future__ import annotations

import asyncio
import ipaddress
import random
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tarragon.base.clock import SystemClock
from tarragon.base.errors import TarragonError
from tarragon.base.resources import CPU, MEMORY
from tarragon.cli.operator import process_environment
from tarragon.cli.options.arguments import assignment, folder_mapping
from tarragon.cli.options.durations import seconds
from tarragon.cli.options.gathering import option_group
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand, embedded_home
from tarragon.cli.targets.cluster_options import ClusterFlags, access, cluster_options
from tarragon.cli.targets.embedded_nodes import NodeFlag, gpu_memory_label, node_settings, parse_amount
from tarragon.kube import name_validation

if TYPE_CHECKING:
    from tarragon.client.http.config import ClusterConfig
    from tarragon.localcluster.kubelet.hollow.kubelet import HollowSettings
    from tarragon.localcluster.kubelet.node.node import NodeSettings
    from tarragon.localcluster.kubelet.remote.remote_node import NodeEndpoint

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str


def taint(text: str) -> Taint:
    """Parse a taint in kubectl's syntax: `KEY=VALUE:EFFECT` or `KEY:EFFECT`. Raises BadParameter."""
    assignment_part, _, effect = text.rpartition(":")
    key, _, value = assignment_part.partition("=")
    if not key or effect not in _EFFECTS:
        raise click.BadParameter(f"{text!r} is not a taint; use KEY=VALUE:EFFECT with one of {', '.join(_EFFECTS)}")
    return Taint(key, value, effect)


def ip_address(text: str) -> str:
    """Parse an IP address that other machines can connect to. Raises BadParameter."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}") from error
    if address.is_unspecified:
        raise click.BadParameter(f"{text} is not a specific address; use the one that API servers can reach")
    return str(address)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """The options that describe the node, as given on the command line."""

    name: str | None
    cpu: str | None
    memory: str | None
    gpu_memory: str | None
    resources: Sequence[tuple[str, str]]
    labels: Sequence[tuple[str, str]]
    taints: Sequence[Taint]
    environments: Sequence[tuple[str, Path]]
    volumes: Sequence[tuple[str, Path]]
    place: Path | None

    def validated_name(self) -> str:
        """Return the node's name. Raises BadParameter."""
        return _valid_name(self.name or socket.gethostname().lower())

    def capacity(self) -> dict[str, int]:
        """Return the capacity given on the command line, in thousandths. Raises BadParameter."""
        given = {CPU: self.cpu, MEMORY: self.memory, **dict(self.resources)}
        return {resource: parse_amount(resource, value) for resource, value in given.items() if value}

    def gpu_labels(self) -> dict[str, str]:
        """Return the label with the memory of the GPUs, if it was given. Raises BadParameter."""
        return gpu_memory_label(self.gpu_memory, self.capacity())

    def node_settings(self, where: ClusterConfig) -> NodeSettings:
        from tarragon.localcluster.kubelet.node.machine import machine_capacity

        name = self.validated_name()
        folder = (self.place or _folder(where, name)).absolute()
        wanted = node_settings([NodeFlag(name, machine_capacity(folder) | self.capacity())], embedded_home())[0]
        return replace(
            wanted,
            folder=folder,
            labels={**wanted.labels, **self.gpu_labels(), **dict(self.labels)},
            taints=tuple({"key": each.key, "value": each.value, "effect": each.effect} for each in self.taints),
            environments=dict(self.environments),
            volumes=dict(self.volumes),
        )

    def hollow_settings(self, count: int, seconds: float | None) -> HollowSettings:
        """Return the settings of this many hollow nodes, whose pods run for so long. Raises BadParameter."""
        from tarragon.localcluster.kubelet.hollow.kubelet import HollowSettings

        names = [f"{self.validated_name()}-{index}" for index in range(count)]
        settings = HollowSettings(names=names, labels=self.gpu_labels(), seconds=seconds)
        return replace(settings, capacity={**settings.capacity, **self.capacity()})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogServerOptions:
    """The options of the node's log server, as given on the command line."""

    address: str | None
    port: int
    authority: Path | None

    def server_address(self, where: ClusterConfig) -> NodeEndpoint:
        from tarragon.localcluster.kubelet.remote.remote_node import NodeEndpoint

        authority = self.authority.read_bytes() if self.authority else b""
        return NodeEndpoint(
            address=self.address or _address(where),
            port=self.port,
            client_authority=authority,
            api_url=where.rest_config.url,
            api_authority=where.rest_config.ca_data,
        )


@click.command("node", cls=TarragonCommand)
@cluster_options
@click.option("--name", metavar="NAME", help="name of the node; this machine's hostname by default")
@click.option("--cpu", metavar="AMOUNT", help="CPU capacity; by default what this process may use")
@click.option("--memory", metavar="AMOUNT", help="memory capacity, such as 16Gi; by default what this process may use")
@click.option(
    "--resource",
    "resources",
    metavar="NAME=AMOUNT",
    type=assignment,
    multiple=True,
    help="capacity of another resource, such as nvidia.com/gpu=4",
)
@click.option("--gpu-memory", metavar="AMOUNT", help="memory of each of its nvidia.com/gpu, such as 16Gi")
@click.option("--label", "labels", metavar="NAME=VALUE", type=assignment, multiple=True, help="a label of the node")
@click.option(
    "--taint",
    "taints",
    metavar="KEY=VALUE:EFFECT",
    type=taint,
    multiple=True,
    help="a taint of the node, set when it registers first",
)
@click.option(
    "--image-env",
    "--env",
    "environments",
    metavar="IMAGE=FOLDER",
    type=folder_mapping,
    multiple=True,
    help="Python environment that replaces an image; by default the one that runs tarragon",
)
@click.option(
    "--volume",
    "volumes",
    metavar="NAME=FOLDER",
    type=folder_mapping,
    multiple=True,
    help="folder that replaces a volume or a claim",
)
@click.option(
    "--folder",
    "place",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="directory for pods, volumes and logs; by default under TARRAGON_HOME, one for each cluster and name",
)
@click.option(
    "--address",
    metavar="IP",
    type=ip_address,
    help="address of this machine for API servers; by default that of the route to the cluster",
)
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=0,
    help="port of the log server; a free one by default",
)
@click.option(
    "--client-ca-file",
    "authority",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="CA for client certificates that may read logs; by default the one the cluster publishes",
)
@click.option(
    "--hollow",
    metavar="N",
    type=click.IntRange(1),
    help="register N simulated nodes instead, NAME-0 and so on; their pods start no processes",
)
@click.option(
    "--hollow-seconds", metavar="S", type=seconds, help="run time of pods on simulated nodes; unlimited by default"
)
@click.pass_obj
@option_group("machine", NodeOptions)
@option_group("door", LogServerOptions)
def command(
    settings: GlobalOptions,
    *,
    cluster: ClusterFlags,
    machine: NodeOptions,
    door: LogServerOptions,
    hollow: int | None,
    hollow_seconds: float | None,
) -> None:
    """Register this machine as a node of a Kubernetes cluster until SIGTERM or Ctrl-C. Pods run as local processes.

    Pods keep running when the command ends; the next start of the same node adopts them. Prints one line with `ready`
    once the node is registered. All replicas of a job must run on one machine: their addresses are local. Pods are
    not isolated: anyone who can create pods in the cluster can run programs as your user on this machine.
    """
    from tarragon.cli.targets.extras import LOCAL, require_extra

    require_extra(LOCAL, "a node without containers")
    process_environment.configure_logging(settings)
    where = access(settings, cluster)
    if hollow is None:
        asyncio.run(_serve(where, machine.node_settings(where), door.server_address(where)))
    else:
        asyncio.run(_serve_hollow(where, machine.hollow_settings(hollow, hollow_seconds)))


def _valid_name(name: str) -> str:
    if name_validation.subdomain(name):
        raise click.BadParameter(
            f"{name!r} is not a valid node name: use lower-case letters, digits, - and .", param_hint="--name"
        )
    return name


def _address(access: ClusterConfig) -> str:
    from yarl import URL

    from tarragon.localcluster.kubelet.remote.server import source_address

    url = URL(access.rest_config.url)
    return source_address(url.host or "localhost", url.port or 443)


def _folder(access: ClusterConfig, name: str) -> Path:
    """Return the node's default folder. Nodes of one cluster share ports and claims; clusters share nothing."""
    from yarl import URL

    url = URL(access.rest_config.url)
    return embedded_home().folder / "clusters" / f"{url.host}-{url.port}" / name


async def _serve(access: ClusterConfig, node: NodeSettings, place: NodeEndpoint) -> None:
    from tarragon.client.http.client import HttpClient
    from tarragon.client.http.user_agent import user_agent
    from tarragon.localcluster.kubelet.remote.remote_node import RemoteNode

    def ready(port: int) -> None:
        logs = f"  logs {place.address}:{port}" if port else ""
        click.echo(f"ready  node {node.name}  {access.rest_config.url}{logs}")
        sys.stdout.flush()

    async with HttpClient(
        replace(access.rest_config, user_agent=user_agent("node", node.name)), random.Random()
    ) as cluster:
        remote = RemoteNode(cluster, node, place, SystemClock())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, remote.stop)
        try:
            await remote.run(ready)
        except BaseExceptionGroup as group:
            # An error that a user can act on is reported alone, not as a group.
            if (error := _user_error(group)) is None:
                raise
            raise error from group


def _user_error(group: BaseExceptionGroup) -> TarragonError | None:
    """Return the first TarragonError in the group; None if the group holds any other exception."""
    found = group.subgroup(TarragonError)
    if found is None or group.subgroup(lambda error: not isinstance(error, TarragonError | BaseExceptionGroup)):
        return None
    first: BaseException = found
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first if isinstance(first, TarragonError) else None


async def _serve_hollow(access: ClusterConfig, settings: HollowSettings) -> None:
    from tarragon.client.http.client import HttpClient
    from tarragon.client.http.user_agent import user_agent
    from tarragon.localcluster.kubelet.hollow.kubelet import HollowKubelet

    server = replace(access.rest_config, user_agent=user_agent("hollow-nodes", settings.names[0]))
    async with HttpClient(server, random.Random()) as cluster:
        hollow = HollowKubelet(cluster, settings, SystemClock())
        work = asyncio.create_task(hollow.run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        registered = asyncio.create_task(hollow.registered())
        await asyncio.wait({work, registered}, return_when=asyncio.FIRST_COMPLETED)
        if registered.done():
            click.echo(f"ready  {len(settings.names)} hollow nodes  {access.rest_config.url}")
            sys.stdout.flush()
        registered.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            work.result()
