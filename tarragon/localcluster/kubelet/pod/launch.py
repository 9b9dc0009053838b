"""Builds the launch of one container for its shim: command, variables and folders of this machine.

Annotations of a pod that are read here, all optional:
    tarragon.dev/workdir        default working directory of containers: the folder the job was submitted from
    tarragon.dev/volumes        {"claim or volume": "/folder"}: the `--volume` options
    tarragon.dev/environments   {"image": "/folder"}: the `--image-env` options
    tarragon.dev/gpus           devices that a scheduler has chosen, comma-separated
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from tarragon.client.port import Client
from tarragon.kube.codec import decode
from tarragon.localcluster.kubelet.base.downward import cpu_count
from tarragon.localcluster.kubelet.base.errors import CannotStart
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.base.spec import Container, Pod
from tarragon.localcluster.kubelet.images.image_file import read_image_file
from tarragon.localcluster.kubelet.images.images import Environment, ImageMap, missing_command_problem
from tarragon.localcluster.kubelet.network.address_translation import (
    PortLookup,
    localize_addresses,
    localize_paths,
)
from tarragon.localcluster.kubelet.network.ports import PortAllocator
from tarragon.localcluster.kubelet.network.service_links import no_links
from tarragon.localcluster.kubelet.network.service_ports import ServicePorts
from tarragon.localcluster.kubelet.node.machine import available_cpus
from tarragon.localcluster.kubelet.node.node import NODE_KIND_LABEL, NodeSettings
from tarragon.localcluster.kubelet.pod import environment
from tarragon.localcluster.kubelet.pod.environment import MachineEnvironment
from tarragon.localcluster.kubelet.pod.records import PodRecord
from tarragon.localcluster.kubelet.pod.threads import CountOfGroup, no_pods, thread_share
from tarragon.localcluster.kubelet.rsh.programs import NodePrograms, mpi_variables, with_programs, without_sshd
from tarragon.localcluster.kubelet.shim.shim_client import LaunchSpec, Stdin
from tarragon.localcluster.kubelet.volumes import mounts, sources, volumes
from tarragon.localcluster.kubelet.volumes.sources import PodObjects
from tarragon.localcluster.kubelet.volumes.tokens import ROOT_BUNDLE, ApiAccess, request_tokens

WORKDIR = "tarragon.dev/workdir"
VOLUMES = "tarragon.dev/volumes"
ENVIRONMENTS = "tarragon.dev/environments"
GPUS = "tarragon.dev/gpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """The container to start, the number of the run, and the node's record of the pod."""

    pod: Pod
    container: Container
    number: int
    record: PodRecord
    identity: str


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """The launch of a container. `volumes` are the folders of the pod's volumes, which now exist.

    `thread_share` are the threads that it got as its share of the cores, 0 if it sets CPUs or threads itself.
    """

    launch: LaunchSpec
    environment: Environment
    volumes: Mapping[str, Path]
    thread_share: int


class Launcher:
    """Prepares containers: reads the objects that a pod refers to, creates its volumes, allocates its ports."""

    def __init__(
        self,
        cluster: Client,
        settings: NodeSettings,
        folder: NodeFolder,
        ports: PortAllocator,
        pod_api: ApiAccess | None = None,
    ) -> None:
        self._cluster = cluster
        self._pod_api = pod_api
        self._settings = settings
        self._folder = folder
        self._programs = NodePrograms(folder)
        self._service_ports = ServicePorts(settings.name, cluster, ports)
        self.service_variables: Callable[[Pod], Awaitable[dict[str, str]]] = no_links
        """Returns the service link variables of a pod."""
        self.sharing_pods: CountOfGroup = no_pods
        """Counts the pods of the node that share its cores."""
        self._machine = MachineEnvironment(
            caller=settings.caller_environment,
            cpus=available_cpus(),
            allocatable=settings.capacity,
            gpu_memory=settings.gpu_memory,
        )

    async def prepare(self, order: StartRequest) -> PreparedLaunch:
        """The launch of a container. Raises CannotStart, ApiError (but NotFound), OSError, TarragonError."""
        order = replace(order, pod=self._with_addresses(order.pod))
        pod, container = order.pod, order.container
        reject_daemon_set_pods(pod)
        image = self._image(order)
        objects = await self._sources(order)
        declared = await self._service_ports.localize_pairs(
            pod, environment.manifest_variables(pod, container, objects, self._settings.capacity)
        )
        argv = without_sshd(environment.command_line(container, image, declared))
        is_first = order.record.volumes is None
        files = sources.mounted_texts(pod, objects) if is_first else []
        lookup = await self._service_ports.of_texts(pod, [*declared.values(), *argv, *files])
        pod_volumes = self._volumes(order, objects, lookup)
        run = self._folder.pod(pod.metadata.uid).run(container.name, order.number)
        local_paths = image.local_paths() | mounts.mount_folders(container, pod_volumes, declared)
        local_paths[container.termination_message_path] = run / "termination"

        def localize(text: str) -> str:
            return localize_paths(localize_addresses(text, lookup), local_paths)

        workdir = self._workdir(order, localize(container.working_dir or image.workdir))
        share = thread_share(pod, self.sharing_pods, self._machine.cpus)
        variables = (
            environment.machine_variables(self._machine, image)
            | dict(image.env)
            | await self.service_variables(pod)
            | (self._pod_api.variables() if self._pod_api else {})
            | environment.training_variables(container, self._machine, order.record.devices_of(container.name), share)
            | environment.shared_gpu_variables(order.record.vgpu, self._machine, image, declared)
            | environment.pod_variables(pod, workdir)
            | mpi_variables(declared, argv, os.getuid(), run)
            | {name: localize(value) for name, value in declared.items()}
        )
        logs = self._folder.pod_logs(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        launch = LaunchSpec(
            identity=order.identity,
            argv=tuple(map(localize, argv)),
            env=with_programs(variables, self._programs.install(pod.metadata.namespace)),
            cwd=workdir,
            log=logs.log(container.name, order.number),
            grace=float(pod.spec.grace_seconds),
            local_paths=local_paths,
            stdin=Stdin(is_open=container.stdin, once=container.stdin_once, tty=container.tty),
        )
        gets_share = cpu_count(container) is None and declared.keys().isdisjoint(environment.THREADS)
        return PreparedLaunch(launch, image, pod_volumes, share if gets_share else 0)

    async def _sources(self, order: StartRequest) -> PodObjects:
        pod, api = order.pod, self._pod_api
        objects = await sources.read_objects(self._cluster, pod.metadata.namespace, sources.object_references(pod))
        if api is None or order.record.volumes is not None:
            return objects
        config_maps = {ROOT_BUNDLE: {"ca.crt": api.certificate_authority}, **objects.config_maps}
        return replace(objects, config_maps=config_maps, tokens=await request_tokens(pod, api.tokens))

    def _image(self, order: StartRequest) -> Environment:
        pod, container = order.pod, order.container
        images = self._images(pod)
        image = images.environment_of(container.image)
        if not image.bin_folder.is_dir():
            raise CannotStart(
                f'image "{container.image}" maps to the environment {image.folder}, which does not exist',
                reason="ErrImageNeverPull",
            )
        if problem := missing_command_problem(container.image, _program(container), images, container.name):
            raise CannotStart(str(problem))
        return image

    def _images(self, pod: Pod) -> ImageMap:
        """The image map, read for each start, so that a corrected file takes effect without a restart."""
        images = ImageMap()
        if self._settings.images is not None:
            images, problems = read_image_file(self._settings.images)
            if problems:
                message = f"{self._settings.images}: {'; '.join(map(str, problems))}"
                raise CannotStart(message, reason="ErrImageNeverPull")
        return images.with_folders(self._settings.environments).with_folders(_folders(pod, ENVIRONMENTS))

    def _volumes(self, order: StartRequest, objects: PodObjects, lookup: PortLookup) -> Mapping[str, Path]:
        if order.record.volumes is not None:
            return {name: Path(place) for name, place in order.record.volumes.items()}
        return volumes.create_volumes(self._volume_context(order.pod, objects, lookup))

    def _volume_context(self, pod: Pod, objects: PodObjects, lookup: PortLookup) -> volumes.VolumeContext:
        return volumes.VolumeContext(
            pod=pod,
            folder=self._folder.pod(pod.metadata.uid).volumes,
            claims_folder=self._folder.claims,
            user_folders={**self._settings.volumes, **_folders(pod, VOLUMES)},
            sources=objects,
            allocatable=self._settings.capacity,
            localize=lambda text: localize_addresses(text, lookup),
        )

    async def refresh(self, pod: Pod) -> None:
        """Update the files of the pod's volumes. Raises ApiError, CannotStart, OSError."""
        pod = self._with_addresses(pod)
        objects = await sources.read_objects(self._cluster, pod.metadata.namespace, sources.object_references(pod))
        if self._pod_api is not None:
            config_maps = {ROOT_BUNDLE: {"ca.crt": self._pod_api.certificate_authority}, **objects.config_maps}
            objects = replace(objects, config_maps=config_maps)
        context = self._volume_context(
            pod, objects, await self._service_ports.of_texts(pod, sources.mounted_texts(pod, objects))
        )
        volumes.refresh_volumes(replace(context, sources=replace(objects, tokens=volumes.token_files(context))))

    def _with_addresses(self, pod: Pod) -> Pod:
        """The pod with the addresses that its status will have."""
        addresses = {"hostIP": self._settings.address, "podIP": self._settings.pod_address}
        return msgspec.structs.replace(pod, status={**addresses, **pod.status})

    def _workdir(self, order: StartRequest, requested: str) -> Path:
        """The requested folder, else that of the pod's annotation, else a folder of the pod."""
        requested = requested or order.pod.metadata.annotations.get(WORKDIR, "")
        if not requested:
            default = self._folder.pod(order.pod.metadata.uid).work
            default.mkdir(mode=0o755, parents=True, exist_ok=True)
            return default
        path = Path(requested)
        if not (path.is_absolute() and path.is_dir()):
            raise CannotStart(
                f"the working directory {requested} does not exist on this machine; mount a volume there, "
                f"or map it in images.yaml: {order.container.image}: {{paths: {{{requested}: FOLDER}}}}"
            )
        return path


def reject_daemon_set_pods(pod: Pod) -> None:
    """Raise CannotStart for pods of DaemonSets, such as network plugins, which need root and tolerate every taint."""
    owner = pod.metadata.controller_identity
    if owner is not None and (owner.group, owner.kind) == ("apps", "DaemonSet"):
        raise CannotStart(
            f"pods of a DaemonSet, such as {owner.name}, are not started on a process node; "
            f"to keep them off it, exclude nodes with the label {NODE_KIND_LABEL} in their node affinity"
        )


def _program(container: Container) -> list[str]:
    """The manifest's command, else arguments that begin with a program, as for an image without an entrypoint."""
    starts_with_program = bool(container.args) and not container.args[0].startswith("-")
    return container.command or (container.args if starts_with_program else [])


def _folders(pod: Pod, annotation: str) -> dict[str, Path]:
    value = pod.metadata.annotations.get(annotation)
    if not value:
        return {}
    try:
        return {name: Path(folder) for name, folder in decode(value, dict[str, str]).items()}
    except msgspec.MsgspecError as error:
        raise CannotStart(f"annotation {annotation} must map names to folders: {error}") from error


def requested_gpus(pod: Pod) -> list[str]:
    return [identity for identity in pod.metadata.annotations.get(GPUS, "").split(",") if identity]
