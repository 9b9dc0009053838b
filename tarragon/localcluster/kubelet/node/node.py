"""Registers the machine as a Node with its capacity, and keeps the Node Ready while the kubelet runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

import tarragon
from tarragon.base.clock import Clock
from tarragon.base.quantity import format_milli
from tarragon.base.resources import CPU, EPHEMERAL_STORAGE, GPU_MEMORY_LABEL, MEMORY, NVIDIA_GPU, PODS, Resources
from tarragon.client.errors import AlreadyExists, ApiError, Forbidden, NotFound
from tarragon.client.port import Client
from tarragon.kube.codec import format_time
from tarragon.kube.core import NODES
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.gpu_shares import GPU_PRODUCT_LABEL, gpu_memory
from tarragon.kube.scheduling.node_gpu_sharing import GPU_SHARING_LABEL, GpuSharing
from tarragon.kube.scheduling.node_resources import HOST_PORTS, OVERCOMMIT_ANNOTATION
from tarragon.localcluster.kubelet.base.downward import LOOPBACK
from tarragon.localcluster.kubelet.network.port_claims import registry_folder
from tarragon.localcluster.kubelet.node import lease

HEARTBEAT_SECONDS = 300.0
"""An embedded cluster does not check heartbeats, and each one is a write to the disk.

A node controller considers a node lost after 40 s; `NodeSettings.heartbeat_seconds` is 10 for such clusters.
"""
LONGEST_PAUSE = 30.0
MAX_PODS = 500
NODE_KIND_LABEL = "tarragon.dev/node"
"""The label of process nodes and hollow nodes, with the kind as its value."""
PRETENDED_DEVICES_ANNOTATION = "tarragon.dev/pretended-devices"
"""The annotation of a node with the resources whose devices are pretended: numbers without real devices."""
VGPUS_ANNOTATION = "tarragon.dev/vgpus"
"""The annotation of a node with its vGPUs: `{"0": {"gpu": "GPU-…", "pods": {"default/train-worker-0": 500}}}`."""
VGPUS_PAUSE = 1.0
"""The least time between two writes of the annotation."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The settings of a node. `capacity` is in thousandths; resources in `shared` may be overcommitted.

    `volumes` maps claims and volumes to folders by name, `environments` maps patterns of images to folders, and
    `images` is the path of images.yaml. Pod annotations may add to these: see `launch`. The kubelet's server listens at
    `address` and `port`, unless the port is 0: see `server`. An empty `pod_address` is left out of pod statuses.
    """

    name: str
    folder: Path
    capacity: Resources
    overcommitted: frozenset[str] = frozenset()
    gpus: tuple[str, ...] = ()
    pretended: frozenset[str] = frozenset()
    """Resources whose devices this machine does not have."""
    labels: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, Path] = field(default_factory=dict)
    environments: Mapping[str, Path] = field(default_factory=dict)
    images: Path | None = None
    port_registry: Path = field(default_factory=registry_folder)
    caller_environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    renews_lease: bool = False
    taints: tuple[Mapping[str, str], ...] = ()
    address: str = LOOPBACK
    pod_address: str = LOOPBACK
    port: int = 0

    @property
    def gpu_memory(self) -> int:
        """The memory of each GPU in bytes, by the node's label, as the scheduler reads it too; 0 for unknown."""
        return gpu_memory(self.labels)


def machine_capacity(folder: Path, gpus: Sequence[str] = ()) -> dict[str, int]:
    """The capacity of this machine: what this process may use, and the given GPUs. The node's files are in `folder`."""
    offered = {
        CPU: available_cpus() * 1000,
        MEMORY: available_memory() * 1000,
        EPHEMERAL_STORAGE: file_system_size(folder) * 1000,
        PODS: MAX_PODS * 1000,
    }
    return offered | ({NVIDIA_GPU: len(gpus) * 1000} if gpus else {})


def available_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> int:
    """The machine's memory in bytes, or the limit of this process's control group if that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [physical]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # no such file, or `max`
            continue
    return min(limits)


def file_system_size(folder: Path) -> int:
    """The size in bytes of the file system that the folder is on, or will be once it exists."""
    for each in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            file_system = os.statvfs(each)
            return file_system.f_blocks * file_system.f_frsize
    return 0


_GPU = re.compile(r"^\d+, (GPU-[0-9a-f-]+), (.*), ([^,\n]*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MachineGpus:
    """The models of a machine's GPUs by UUID, in PCI bus order; `allowed` are the UUIDs that this process may use.

    `memory` is in MiB, for GPUs with memory of their own.
    """

    models: Mapping[str, str] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()
    memory: Mapping[str, int] = field(default_factory=dict)

    def labels(self, some: Sequence[str]) -> dict[str, str]:
        """The labels of a node with these GPUs, as NVIDIA's GPU feature discovery sets them: product and memory.

        There is no product for several models. The memory is that of the smallest GPU, so that none is oversold.
        """
        labels = {}
        known = [identity for identity in some if identity in self.models]
        models = {self.models[identity] for identity in known}
        if len(models) == 1:
            labels[GPU_PRODUCT_LABEL] = re.sub(r"[^A-Za-z0-9_.-]+", "-", models.pop())
        if known and all(identity in self.memory for identity in known):
            labels[GPU_MEMORY_LABEL] = str(min(self.memory[identity] for identity in known))
        return labels


def detect_gpus(environment: Mapping[str, str]) -> MachineGpus:
    """The machine's NVIDIA GPUs, as nvidia-smi lists them; CUDA_VISIBLE_DEVICES limits those allowed. Blocks."""
    command = ["nvidia-smi", "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return MachineGpus()
    return read_gpus(listed.stdout, environment.get("CUDA_VISIBLE_DEVICES")) if not listed.returncode else MachineGpus()


def read_gpus(listed: str, allowed: str | None) -> MachineGpus:
    """The GPUs of nvidia-smi's list, of which CUDA_VISIBLE_DEVICES allows some. Other lines are ignored."""
    found = [match.groups() for match in _GPU.finditer(listed)]
    models = {identity: model for identity, model, _ in found}
    # A GPU that uses the machine's memory has "[N/A]".
    memory = {identity: int(amount) for identity, _, amount in found if amount.isascii() and amount.isdigit()}
    return MachineGpus(models, visible_devices(list(models), allowed), memory)


def visible_devices(found: Sequence[str], allowed: str | None) -> tuple[str, ...]:
    """The visible devices by CUDA's rules: numbers or prefixes of UUIDs; the first invalid entry ends the list."""
    if allowed is None:
        return tuple(found)
    selected: list[str] = []
    for word in (part.strip() for part in allowed.split(",")):
        matches = [found[int(word)]] if word.isdigit() and int(word) < len(found) else []
        matches = matches or [identity for identity in found if word and identity.startswith(word)]
        if not matches:
            break
        selected += matches[:1]
    return tuple(selected)


# ----------------------------------------------------------------------------------------------------------- the object


def node_manifest(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    system, machine = platform.system().lower(), platform.machine()
    own = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": system,
        "kubernetes.io/arch": ARCHITECTURES.get(machine, machine),
        NODE_KIND_LABEL: "process",
        GPU_SHARING_LABEL: GpuSharing.KUBELET.value,
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {**own, **labels}}, "spec": {}}


def node_status(name: str, capacity: Resources, now: str) -> dict[str, Any]:
    amounts = {resource: format_milli(amount) for resource, amount in capacity.items()}
    system, machine = platform.system().lower(), platform.machine()
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [_condition(*condition, now) for condition in _CONDITIONS],
        "addresses": [{"type": "InternalIP", "address": LOOPBACK}, {"type": "Hostname", "address": name}],
        "nodeInfo": {
            "architecture": ARCHITECTURES.get(machine, machine),
            "operatingSystem": system,
            "kernelVersion": platform.release(),
            "osImage": _os_image(),
            "kubeletVersion": f"tarragon-{tarragon.__version__}",
            "kubeProxyVersion": "",
            "containerRuntimeVersion": f"process://{sys.version_info.major}.{sys.version_info.minor}",
            "bootID": "",
            "machineID": "",
            "systemUUID": "",
        },
    }


_CONDITIONS = (
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "not monitored on a process node"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "not monitored on a process node"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "not monitored on a process node"),
)


def _condition(kind: str, state: str, reason: str, message: str, now: str) -> dict[str, Any]:
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {"type": kind, "status": state, "reason": reason, "message": message, **times}


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return platform.platform()


class NodeRegistration:
    """Creates the Node object, keeps it Ready and its label with its GPUs' memory true, and shows its vGPUs in an
    annotation.
    """

    def __init__(self, cluster: Client, settings: NodeSettings, clock: Clock) -> None:
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._key = Key("", settings.name)
        self._since = ""
        self._ready = asyncio.Event()
        self._vgpus: str | None = None
        self._have_vgpus_changed = asyncio.Event()

    def report_vgpus(self, table: str | None) -> None:
        """Set the annotation with the node's vGPUs soon, or remove it."""
        if table != self._vgpus:
            self._vgpus = table
            self._have_vgpus_changed.set()

    async def became_ready(self) -> None:
        """Return when the node has been reported Ready for the first time."""
        await self._ready.wait()

    async def run(self) -> None:
        """Send heartbeats and write the annotation until cancelled; register the node again if it was deleted."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send_heartbeats())
            group.create_task(self._write_vgpus())

    async def _send_heartbeats(self) -> None:
        pause = 1.0
        registered = False
        while True:
            try:
                if not registered:
                    await self._register()
                registered = True
                await self._send_heartbeat()
                self._ready.set()
                pause = self._settings.heartbeat_seconds
            except NotFound:
                registered, pause = False, 1.0
            except ApiError as error:
                pause = min(pause * 2, LONGEST_PAUSE, self._settings.heartbeat_seconds)
                _log.info("the Node could not be written", node=self._settings.name, error=str(error), pause=pause)
            await self._clock.sleep(pause)

    async def _register(self) -> None:
        settings = self._settings
        body = node_manifest(settings.name, settings.labels)
        # Host ports never conflict: each process has its own port on the machine, whatever its number in the pod.
        shared = {OVERCOMMIT_ANNOTATION: ",".join(sorted({*settings.overcommitted, HOST_PORTS}))}
        pretended = {PRETENDED_DEVICES_ANNOTATION: ",".join(sorted(settings.pretended)) or None}
        shown = {VGPUS_ANNOTATION: self._vgpus}
        metadata = {"labels": body["metadata"]["labels"], "annotations": {**shared, **pretended, **shown}}
        spec = {"taints": list(settings.taints)} if settings.taints else {}
        try:
            annotations = {name: value for name, value in metadata["annotations"].items() if value is not None}
            complete = {**body["metadata"], **metadata, "annotations": annotations}
            await self._cluster.create(NODES, {**body, "metadata": complete, "spec": spec})
        except AlreadyExists:
            await self._cluster.patch(NODES, self._key, {"metadata": metadata})

    async def _write_vgpus(self) -> None:
        # The registration writes it too.
        await self._ready.wait()
        while True:
            await self._have_vgpus_changed.wait()
            self._have_vgpus_changed.clear()
            try:
                await self._cluster.patch(
                    NODES, self._key, {"metadata": {"annotations": {VGPUS_ANNOTATION: self._vgpus}}}
                )
            except NotFound:
                pass  # the node will be registered again
            except ApiError as error:
                self._have_vgpus_changed.set()
                _log.info("the Node could not be annotated", node=self._settings.name, error=str(error))
            await self._clock.sleep(VGPUS_PAUSE)

    async def _send_heartbeat(self) -> None:
        now = format_time(self._clock.now())
        self._since = self._since or now
        settings = self._settings
        new_status = node_status(settings.name, settings.capacity, now)
        for condition in new_status["conditions"]:
            condition["lastTransitionTime"] = self._since
        new_status["addresses"][0]["address"] = settings.address
        if settings.port:
            new_status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": settings.port}}
        node = await self._cluster.patch(NODES, self._key, {"status": new_status}, subresource="status")
        memory = settings.labels.get(GPU_MEMORY_LABEL)
        if memory is not None and node.metadata.labels.get(GPU_MEMORY_LABEL) != memory:
            # A scheduler that read another amount would send pods that this kubelet refuses.
            await self._cluster.patch(NODES, self._key, {"metadata": {"labels": {GPU_MEMORY_LABEL: memory}}})
        if settings.renews_lease:
            await self._renew_lease()

    async def _renew_lease(self) -> None:
        try:
            seconds = max(lease.LEASE_SECONDS, int(2 * self._settings.heartbeat_seconds))
            await lease.renew_lease(self._cluster, self._settings.name, self._clock, seconds)
        except NotFound:  # an old cluster, or one without a node controller: the status is a heartbeat too
            _log.debug("this cluster has no node leases", node=self._settings.name)
        except Forbidden as error:
            _log.warning("no permission to renew the node's lease", node=self._settings.name, error=str(error))
