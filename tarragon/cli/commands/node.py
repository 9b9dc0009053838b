"""`tarragon node`: this machine as a node of any Kubernetes cluster, its pods as processes."""

from __future__ import annotations

import asyncio
import ipaddress
import random
import re
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tarragon.base.clock import SystemClock
from tarragon.base.errors import TarragonError
from tarragon.base.resources import CPU, MEMORY
from tarragon.cli.operator import surroundings
from tarragon.cli.options.arguments import assignment, folder
from tarragon.cli.options.durations import seconds
from tarragon.cli.options.gathering import gathered
from tarragon.cli.options.settings import Command, Settings, home
from tarragon.cli.targets.cluster_options import Named, access, cluster_options
from tarragon.cli.targets.embedded_nodes import WantedNode, amount, settings_of

if TYPE_CHECKING:
    from tarragon.client.http.connection import Access
    from tarragon.localcluster.kubelet.node.node import NodeSettings
    from tarragon.localcluster.kubelet.remote.remote import Place

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str


def taint(text: str) -> Taint:
    """`KEY=VALUE:EFFECT` or `KEY:EFFECT`, as kubectl takes it."""
    what, _, effect = text.rpartition(":")
    key, _, value = what.partition("=")
    if not key or effect not in _EFFECTS:
        raise click.BadParameter(f"{text!r} is no taint; write KEY=VALUE:{_EFFECTS[0]} or another of {_EFFECTS[1:]}")
    return Taint(key, value, effect)


def ip_address(text: str) -> str:
    """One that a machine can be reached at."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}") from error
    if address.is_unspecified:
        raise click.BadParameter(f"{text} is every address of this machine; name the one that API servers reach")
    return str(address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What this machine is as a node: as the command line has it."""

    name: str | None
    cpu: str | None
    memory: str | None
    resources: Sequence[tuple[str, str]]
    labels: Sequence[tuple[str, str]]
    taints: Sequence[Taint]
    environments: Sequence[tuple[str, Path]]
    volumes: Sequence[tuple[str, Path]]
    place: Path | None

    def named(self) -> str:
        """Raises BadParameter."""
        return _lawful(self.name or socket.gethostname().lower())

    def amounts(self) -> dict[str, int]:
        """What it was said to offer. Raises BadParameter."""
        given = {CPU: self.cpu, MEMORY: self.memory, **dict(self.resources)}
        return {resource: amount(resource, value) for resource, value in given.items() if value}

    def settings(self, where: Access) -> NodeSettings:
        from tarragon.localcluster.kubelet.node.node import this_machine

        name = self.named()
        wanted = settings_of([WantedNode(name, this_machine() | self.amounts())], home())[0]
        return replace(
            wanted,
            folder=(self.place or _folder(where, name)).absolute(),
            labels={**wanted.labels, **dict(self.labels)},
            taints=tuple({"key": each.key, "value": each.value, "effect": each.effect} for each in self.taints),
            environments=dict(self.environments),
            volumes=dict(self.volumes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where the node is asked for logs, and by whom: as the command line has it."""

    address: str | None
    port: int
    authority: Path | None

    def towards(self, where: Access) -> Place:
        from tarragon.localcluster.kubelet.remote.remote import Place

        authority = self.authority.read_bytes() if self.authority else b""
        return Place(address=self.address or _address(where), port=self.port, client_authority=authority)


@click.command("node", cls=Command)
@cluster_options
@click.option("--name", metavar="NAME", help="of the node; by default this machine's")
@click.option("--cpu", metavar="AMOUNT", help="that it offers; by default what this process may use")
@click.option("--memory", metavar="AMOUNT", help="as above: 16Gi")
@click.option(
    "--resource", "resources", metavar="NAME=AMOUNT", type=assignment, multiple=True, help="more: nvidia.com/gpu=4"
)
@click.option("--label", "labels", metavar="NAME=VALUE", type=assignment, multiple=True, help="of the node")
@click.option(
    "--taint", "taints", metavar="KEY=VALUE:EFFECT", type=taint, multiple=True, help="of a new node: who keeps off it"
)
@click.option(
    "--env",
    "environments",
    metavar="IMAGE=FOLDER",
    type=folder,
    multiple=True,
    help="what stands for an image; by default the environment that runs tarragon",
)
@click.option(
    "--volume", "volumes", metavar="NAME=FOLDER", type=folder, multiple=True, help="what stands for a volume or a claim"
)
@click.option(
    "--folder",
    "place",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="for pods, volumes and logs; by default below TARRAGON_HOME, one for each cluster and name",
)
@click.option(
    "--address",
    metavar="IP",
    type=ip_address,
    help="of this machine, for API servers; by default that towards the cluster",
)
@click.option(
    "--port", metavar="N", type=click.IntRange(0, 65535), default=0, help="where logs are served; by default a free one"
)
@click.option(
    "--client-ca-file",
    "authority",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="whose client certificates may ask for logs; by default the cluster says it",
)
@click.option(
    "--hollow",
    metavar="N",
    type=click.IntRange(1),
    help="that many nodes instead, NAME-0 and so on, whose pods only seem to run",
)
@click.option("--hollow-seconds", metavar="S", type=seconds, help="how long they do; for ever by default")
@click.pass_obj
@gathered("machine", Machine)
@gathered("door", Door)
def command(
    settings: Settings,
    *,
    cluster: Named,
    machine: Machine,
    door: Door,
    hollow: int | None,
    hollow_seconds: float | None,
) -> None:
    """Be a node of a Kubernetes cluster until SIGTERM or Ctrl-C; pods are processes of this machine and your user.

    They go on when it ends, and the next start of the same node takes them up. Prints one line with `ready` once the
    cluster knows it. All replicas of one job must be on one machine: their addresses are local ones. Nothing is
    isolated: whoever may make pods in that cluster may run programs as you, here.
    """
    surroundings.log(settings)
    where = access(settings, cluster)
    if hollow is None:
        asyncio.run(_serve(where, machine.settings(where), door.towards(where)))
    else:
        names = [f"{machine.named()}-{index}" for index in range(hollow)]
        asyncio.run(_pretend(where, names, machine.amounts(), hollow_seconds))


def _lawful(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise click.BadParameter(
            f"{name!r} is no name of a node: lower-case letters, digits, - and .", param_hint="--name"
        )
    return name


def _address(access: Access) -> str:
    from yarl import URL

    from tarragon.localcluster.kubelet.remote.server import way_to

    url = URL(access.server.url)
    return way_to(url.host or "localhost", url.port or 443)


def _folder(access: Access, name: str) -> Path:
    """Nodes of one cluster share ports and claims, those of two clusters nothing."""
    from yarl import URL

    url = URL(access.server.url)
    return home().folder / "clusters" / f"{url.host}-{url.port}" / name


async def _serve(access: Access, node: NodeSettings, place: Place) -> None:
    from tarragon.client.http.client import Http
    from tarragon.client.http.user_agent import user_agent
    from tarragon.localcluster.kubelet.remote.remote import RemoteNode

    def ready(port: int) -> None:
        logs = f"  logs {place.address}:{port}" if port else ""
        click.echo(f"ready  node {node.name}  {access.server.url}{logs}")
        sys.stdout.flush()

    async with Http(replace(access.server, user_agent=user_agent("node", node.name)), random.Random()) as cluster:
        remote = RemoteNode(cluster, node, place, SystemClock())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, remote.stop)
        try:
            await remote.run(ready)
        except BaseExceptionGroup as group:
            # What is wrong for a user in one of a kubelet's parts is one error for whoever has started it.
            if (error := _told(group)) is None:
                raise
            raise error from group


def _told(group: BaseExceptionGroup) -> TarragonError | None:
    """The first in it that is worded for a person, if there are no others."""
    found = group.subgroup(TarragonError)
    if found is None or group.subgroup(lambda error: not isinstance(error, TarragonError | BaseExceptionGroup)):
        return None
    first: BaseException = found
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first if isinstance(first, TarragonError) else None


async def _pretend(access: Access, names: Sequence[str], amounts: Mapping[str, int], seconds: float | None) -> None:
    from tarragon.client.http.client import Http
    from tarragon.client.http.user_agent import user_agent
    from tarragon.localcluster.kubelet.hollow.kubelet import Hollow, HollowSettings

    settings = HollowSettings(names=names, seconds=seconds)
    if amounts:
        settings = replace(settings, capacity={**settings.capacity, **amounts})
    server = replace(access.server, user_agent=user_agent("hollow-nodes", names[0]))
    async with Http(server, random.Random()) as cluster:
        hollow = Hollow(cluster, settings, SystemClock())
        work = asyncio.create_task(hollow.run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        made = asyncio.create_task(hollow.registered())
        await asyncio.wait({work, made}, return_when=asyncio.FIRST_COMPLETED)
        if made.done():
            click.echo(f"ready  {len(names)} hollow nodes  {access.server.url}")
            sys.stdout.flush()
        made.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            work.result()
