"""Registers the machine as a Node with its capacity, and keeps the Node Ready while the kubelet runs."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

import tarragon
from tarragon.base.clock import Clock
from tarragon.base.quantity import format_milli
from tarragon.base.resources import GPU_MEMORY_LABEL, Resources
from tarragon.client.errors import AlreadyExists, ApiError, Forbidden, NotFound
from tarragon.client.port import Client
from tarragon.kube.codec import format_time
from tarragon.kube.core import NODES
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.gpu_shares import gpu_memory
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
