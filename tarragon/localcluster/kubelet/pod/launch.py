"""Turns one container of a pod into what its shim is told: command, variables and folders of this machine.

Annotations of a pod that count here, all optional:
    tarragon.dev/workdir        working directory of containers that name none: where the job was submitted from
    tarragon.dev/volumes        {"claim or volume": "/folder"}: what `--volume` said
    tarragon.dev/environments   {"image": "/folder"}: what `--env` said
    tarragon.dev/gpus           devices that a scheduler has chosen, comma-separated
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from tarragon.client.errors import NotFound
from tarragon.client.port import Cluster
from tarragon.kube.codec import decode
from tarragon.kube.core import SERVICES, Service
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.base.errors import CannotStart
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.base.spec import Container, Pod
from tarragon.localcluster.kubelet.images.image_file import read_image_file
from tarragon.localcluster.kubelet.images.images import Environment, ImageMap, lacks_command
from tarragon.localcluster.kubelet.network.ports import PortBook
from tarragon.localcluster.kubelet.network.service_links import no_links
from tarragon.localcluster.kubelet.network.translate import (
    Address,
    Lookup,
    addresses,
    with_local_paths,
    with_local_ports,
)
from tarragon.localcluster.kubelet.node.node import KIND, NodeSettings, cpus
from tarragon.localcluster.kubelet.pod import environment
from tarragon.localcluster.kubelet.pod.environment import Machine
from tarragon.localcluster.kubelet.pod.records import PodRecord
from tarragon.localcluster.kubelet.shim.shim_client import Launch, Stdin
from tarragon.localcluster.kubelet.volumes import mounts, sources, volumes
from tarragon.localcluster.kubelet.volumes.sources import Sources
from tarragon.localcluster.kubelet.volumes.tokens import ROOT_BUNDLE, PodApi, tokens_for

WORKDIR = "tarragon.dev/workdir"
VOLUMES = "tarragon.dev/volumes"
ENVIRONMENTS = "tarragon.dev/environments"
GPUS = "tarragon.dev/gpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which container to start, for the how-manieth time, and what the node has decided for its pod."""

    pod: Pod
    container: Container
    number: int
    record: PodRecord
    identity: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """`volumes` are the pod's, made if they were not."""

    launch: Launch
    environment: Environment
    volumes: Mapping[str, Path]


class Launcher:
    """Reads what a pod refers to, makes its volumes, allots its ports."""

    def __init__(
        self,
        cluster: Cluster,
        settings: NodeSettings,
        folder: NodeFolder,
        ports: PortBook,
        pod_api: PodApi | None = None,
    ) -> None:
        self._cluster = cluster
        self._pod_api = pod_api
        self._settings = settings
        self._folder = folder
        self._ports = ports
        self.links: Callable[[Pod], Awaitable[dict[str, str]]] = no_links
        """The variables by which a pod finds services."""
        self._machine = Machine(caller=settings.caller, cpus=cpus(), allocatable=settings.capacity)

    async def prepare(self, order: Order) -> Prepared:
        """Raises CannotStart, ApiError (but for what is simply not there), OSError, TarragonError."""
        order = replace(order, pod=self._addressed(order.pod))
        pod, container = order.pod, order.container
        refuse_for_real_nodes(pod)
        image = self._image(order)
        found = await self._sources(order)
        declared = environment.declared(pod, container, found, self._settings.capacity)
        argv = environment.command_line(container, image, declared)
        is_first = order.record.volumes is None
        files = _configuration(pod, found) if is_first else []
        lookup = await self._ports_for(pod, [*declared.values(), *argv, *files])
        made = self._volumes(order, found, lookup)
        run = self._folder.pod(pod.metadata.uid).run(container.name, order.number)
        places = image.places() | mounts.places(container, made, declared)
        places[container.termination_message_path] = run / "termination"

        def local(text: str) -> str:
            return with_local_paths(with_local_ports(text, lookup), places)

        workdir = self._workdir(order, local(container.working_dir or image.workdir))
        variables = (
            environment.base(self._machine, image)
            | dict(image.env)
            | await self.links(pod)
            | (self._pod_api.variables() if self._pod_api else {})
            | environment.training(container, self._machine, order.record.devices_of(container.name))
            | environment.of_the_pod(pod, workdir)
            | {name: local(value) for name, value in declared.items()}
        )
        logs = self._folder.pod_logs(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        launch = Launch(
            identity=order.identity,
            argv=tuple(map(local, argv)),
            env=variables,
            cwd=workdir,
            log=logs.log(container.name, order.number),
            grace=float(pod.spec.grace_seconds),
            places=places,
            stdin=Stdin(is_open=container.stdin, once=container.stdin_once, tty=container.tty),
        )
        return Prepared(launch, image, made)

    async def _sources(self, order: Order) -> Sources:
        pod, api = order.pod, self._pod_api
        found = await sources.read(self._cluster, pod.metadata.namespace, sources.referred_to(pod))
        if api is None or order.record.volumes is not None:
            return found
        config_maps = {ROOT_BUNDLE: {"ca.crt": api.authority}, **found.config_maps}
        return replace(found, config_maps=config_maps, tokens=await tokens_for(pod, api.tokens))

    def _image(self, order: Order) -> Environment:
        pod, container = order.pod, order.container
        images = self._images(pod)
        image = images.environment(container.image)
        if not image.programs.is_dir():
            raise CannotStart(
                f'image "{container.image}" stands for the environment {image.folder}, which does not exist',
                reason="ErrImageNeverPull",
            )
        if problem := lacks_command(container.image, _named(container), images, container.name):
            raise CannotStart(str(problem))
        return image

    def _images(self, pod: Pod) -> ImageMap:
        """Read anew for each start: whoever mends the file need not restart anything."""
        images = ImageMap()
        if self._settings.images is not None:
            images, problems = read_image_file(self._settings.images)
            if problems:
                words = f"{self._settings.images}: {'; '.join(map(str, problems))}"
                raise CannotStart(words, reason="ErrImageNeverPull")
        return images.with_folders(self._settings.environments).with_folders(_folders(pod, ENVIRONMENTS))

    async def _ports_for(self, pod: Pod, texts: Iterable[str]) -> Lookup:
        """The local ports of all addresses of services in these texts."""
        own = pod.metadata.namespace
        meant: dict[Address, Address] = {}
        for address in set().union(*map(addresses, texts)):
            full = Address(namespace=address.namespace or own, name=address.name, port=address.port)
            if address.namespace or await self._is_port_of_a_service(full):
                meant[address] = full
        user = f"{self._settings.name}/{pod.metadata.uid}"
        local = self._ports.allot(meant.values(), user)

        def lookup(address: Address) -> int | None:
            return local.get(meant[address]) if address in meant else None

        return lookup

    async def _is_port_of_a_service(self, address: Address) -> bool:
        """Asked of the API itself: a cache may not have heard yet of a service that was made just before the pod."""
        try:
            service: Service = await self._cluster.get(SERVICES, Key(address.namespace, address.name))
        except NotFound:
            return False
        return any(port.port == address.port for port in service.spec.ports)

    def _volumes(self, order: Order, found: Sources, lookup: Lookup) -> Mapping[str, Path]:
        if order.record.volumes is not None:
            return {name: Path(place) for name, place in order.record.volumes.items()}
        return volumes.make(self._surroundings(order.pod, found, lookup))

    def _surroundings(self, pod: Pod, found: Sources, lookup: Lookup) -> volumes.Surroundings:
        return volumes.Surroundings(
            pod=pod,
            folder=self._folder.pod(pod.metadata.uid).volumes,
            claims=self._folder.claims,
            given={**self._settings.volumes, **_folders(pod, VOLUMES)},
            sources=found,
            allocatable=self._settings.capacity,
            local=lambda text: with_local_ports(text, lookup),
        )

    async def refresh(self, pod: Pod) -> None:
        """Bring the files of its volumes up to date. Raises ApiError, CannotStart, OSError."""
        pod = self._addressed(pod)
        found = await sources.read(self._cluster, pod.metadata.namespace, sources.referred_to(pod))
        if self._pod_api is not None:
            found = replace(found, config_maps={ROOT_BUNDLE: {"ca.crt": self._pod_api.authority}, **found.config_maps})
        around = self._surroundings(pod, found, await self._ports_for(pod, _configuration(pod, found)))
        volumes.refresh(replace(around, sources=replace(found, tokens=volumes.token_files(around))))

    def _addressed(self, pod: Pod) -> Pod:
        """With the addresses that its status will tell, if it does not yet."""
        addresses = {"hostIP": self._settings.address, "podIP": self._settings.pod_address}
        return msgspec.structs.replace(pod, status={**addresses, **pod.status})

    def _workdir(self, order: Order, named: str) -> Path:
        """The container's own, else the caller's, else one of the pod."""
        named = named or order.pod.metadata.annotations.get(WORKDIR, "")
        if not named:
            own = self._folder.pod(order.pod.metadata.uid).work
            own.mkdir(mode=0o755, parents=True, exist_ok=True)
            return own
        path = Path(named)
        if not (path.is_absolute() and path.is_dir()):
            raise CannotStart(
                f"the working directory {named} is no folder of this machine; mount a volume there, "
                f"or say in images.yaml where it is: {order.container.image}: {{paths: {{{named}: FOLDER}}}}"
            )
        return path


def refuse_for_real_nodes(pod: Pod) -> None:
    """A network plugin or a proxy tolerates every taint, wants to be root, and would be meant for the whole machine."""
    owner = pod.metadata.controlled_by
    if owner is not None and (owner.group, owner.kind) == ("apps", "DaemonSet"):
        raise CannotStart(
            f"pods of a DaemonSet, such as {owner.name}, serve real nodes and are not started on one of processes; "
            f"to keep them off, exclude the label {KIND} in their node affinity"
        )


def _named(container: Container) -> list[str]:
    """The program as far as the manifest names it. Most images have no entrypoint: then the arguments begin with it."""
    begins_with_a_program = bool(container.args) and not container.args[0].startswith("-")
    return container.command or (container.args if begins_with_a_program else [])


def _configuration(pod: Pod, found: Sources) -> list[str]:
    """The text of the configuration files that the pod mounts."""
    return [
        data.decode(errors="ignore")
        for name in sources.mounted_config_maps(pod)
        for data in found.config_maps.get(name, {}).values()
    ]


def _folders(pod: Pod, annotation: str) -> dict[str, Path]:
    said = pod.metadata.annotations.get(annotation)
    if not said:
        return {}
    try:
        return {name: Path(folder) for name, folder in decode(said, dict[str, str]).items()}
    except msgspec.MsgspecError as error:
        raise CannotStart(f"annotation {annotation} is no map of names to folders: {error}") from error


def wished_gpus(pod: Pod) -> list[str]:
    return [identity for identity in pod.metadata.annotations.get(GPUS, "").split(",") if identity]
