"""Registers the machine as a Node with its capacity, and keeps the Node Ready while the kubelet runs."""

from __future__ import annotations

import asyncio
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
from tarragon.base.quantity import text
from tarragon.base.resources import CPU, MEMORY, NVIDIA_GPU, PODS, Resources
from tarragon.client.errors import AlreadyExists, ApiError, Forbidden, NotFound
from tarragon.client.port import Cluster
from tarragon.kube.codec import timestamp
from tarragon.kube.core import NODES
from tarragon.kube.meta import Key
from tarragon.localcluster.fit import HOST_PORTS, OVERCOMMIT
from tarragon.localcluster.kubelet.base.downward import HOST
from tarragon.localcluster.kubelet.network.port_claims import machine_folder
from tarragon.localcluster.kubelet.node import lease

HEARTBEAT_SECONDS = 300.0
"""An embedded cluster does not check heartbeats, and each one is a write to the disk.

A node controller considers a node lost after 40 s; `NodeSettings.heartbeat_seconds` is 10 for such clusters.
"""
LONGEST_PAUSE = 30.0
MOST_PODS = 500
KIND = "tarragon.dev/node"
"""The label of process nodes and hollow nodes, with the kind as its value."""
PRODUCT = "nvidia.com/gpu.product"
"""The label in which NVIDIA's GPU feature discovery reports the model."""
PRETENDED = "tarragon.dev/pretended-devices"
"""The annotation of a node with the resources whose devices are pretended: numbers without real devices."""
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
    shared: frozenset[str] = frozenset()
    gpus: tuple[str, ...] = ()
    pretended: frozenset[str] = frozenset()
    """Resources whose devices this machine does not have."""
    labels: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, Path] = field(default_factory=dict)
    environments: Mapping[str, Path] = field(default_factory=dict)
    images: Path | None = None
    registry: Path = field(default_factory=machine_folder)
    caller: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    has_lease: bool = False
    taints: tuple[Mapping[str, str], ...] = ()
    address: str = HOST
    pod_address: str = HOST
    port: int = 0


def this_machine(gpus: Sequence[str] = ()) -> dict[str, int]:
    """The capacity of this machine: the CPUs and memory that this process may use, and the given GPUs."""
    offered = {CPU: cpus() * 1000, MEMORY: memory() * 1000, PODS: MOST_PODS * 1000}
    return offered | ({NVIDIA_GPU: len(gpus) * 1000} if gpus else {})


def cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """The machine's memory in bytes, or the limit of this process's control group if that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [physical]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # no such file, or `max`
            continue
    return min(limits)


_GPU = re.compile(r"GPU \d+: (.*) \(UUID: (GPU-[0-9a-f-]+)\)")


@dataclass(frozen=True, slots=True)
class Gpus:
    """The models of a machine's GPUs by UUID, in PCI bus order; `allowed` are the UUIDs that this process may use."""

    models: Mapping[str, str] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()

    def labels(self, some: Sequence[str]) -> dict[str, str]:
        """The product label of these GPUs, as NVIDIA's GPU feature discovery sets it; none for several models."""
        models = {self.models[identity] for identity in some if identity in self.models}
        return {PRODUCT: re.sub(r"[^A-Za-z0-9_.-]+", "-", models.pop())} if len(models) == 1 else {}


def gpus_of_this_machine(environment: Mapping[str, str]) -> Gpus:
    """The machine's NVIDIA GPUs, as nvidia-smi lists them; CUDA_VISIBLE_DEVICES limits those allowed. Blocks."""
    command = ["nvidia-smi", "-L"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Gpus()
    models = {identity: model for model, identity in _GPU.findall(listed.stdout)} if listed.returncode == 0 else {}
    return Gpus(models, visible(list(models), environment.get("CUDA_VISIBLE_DEVICES")))


def visible(found: Sequence[str], allowed: str | None) -> tuple[str, ...]:
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


def manifest(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    system, machine = platform.system().lower(), platform.machine()
    own = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": system,
        "kubernetes.io/arch": ARCHITECTURES.get(machine, machine),
        KIND: "process",
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {**own, **labels}}, "spec": {}}


def status(name: str, capacity: Resources, now: str) -> dict[str, Any]:
    amounts = {resource: text(amount) for resource, amount in capacity.items()}
    system, machine = platform.system().lower(), platform.machine()
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [_condition(*condition, now) for condition in _CONDITIONS],
        "addresses": [{"type": "InternalIP", "address": HOST}, {"type": "Hostname", "address": name}],
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


class Registration:
    """Creates the Node object and keeps it Ready."""

    def __init__(self, cluster: Cluster, settings: NodeSettings, clock: Clock) -> None:
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._key = Key("", settings.name)
        self._since = ""
        self._ready = asyncio.Event()

    async def told(self) -> None:
        """Return when the node has been reported Ready for the first time."""
        await self._ready.wait()

    async def run(self) -> None:
        """Send heartbeats until cancelled; register the node again if it was deleted."""
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
        body = manifest(settings.name, settings.labels)
        # Host ports never conflict: each process has its own port on the machine, whatever its number in the pod.
        shared = {OVERCOMMIT: ",".join(sorted({*settings.shared, HOST_PORTS}))}
        pretended = {PRETENDED: ",".join(sorted(settings.pretended)) or None}
        metadata = {"labels": body["metadata"]["labels"], "annotations": {**shared, **pretended}}
        spec = {"taints": list(settings.taints)} if settings.taints else {}
        try:
            annotations = {name: value for name, value in metadata["annotations"].items() if value is not None}
            complete = {**body["metadata"], **metadata, "annotations": annotations}
            await self._cluster.create(NODES, {**body, "metadata": complete, "spec": spec})
        except AlreadyExists:
            await self._cluster.patch(NODES, self._key, {"metadata": metadata})

    async def _send_heartbeat(self) -> None:
        now = timestamp(self._clock.now())
        self._since = self._since or now
        settings = self._settings
        new_status = status(settings.name, settings.capacity, now)
        for condition in new_status["conditions"]:
            condition["lastTransitionTime"] = self._since
        new_status["addresses"][0]["address"] = settings.address
        if settings.port:
            new_status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": settings.port}}
        await self._cluster.patch(NODES, self._key, {"status": new_status}, subresource="status")
        if settings.has_lease:
            await self._renew_lease()

    async def _renew_lease(self) -> None:
        try:
            seconds = max(lease.LEASE_SECONDS, int(2 * self._settings.heartbeat_seconds))
            await lease.renew(self._cluster, self._settings.name, self._clock, seconds)
        except NotFound:  # an old cluster, or one without a node controller: the status is a heartbeat too
            _log.debug("this cluster has no node leases", node=self._settings.name)
        except Forbidden as error:
            _log.warning("no permission to renew the node's lease", node=self._settings.name, error=str(error))
