"""One node: what the machine offers, as a Node object that says so and stays Ready while the kubelet runs."""

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
"""An embedded cluster has nobody who would miss a heartbeat, and each is a write to the disk.

A cluster with a node controller takes a node for lost after 40 s: there, `NodeSettings.heartbeat_seconds` is 10.
"""
LONGEST_PAUSE = 30.0
MOST_PODS = 500
KIND = "tarragon.dev/node"
"""The label that tells a node of processes, or a hollow one, from all others."""
PRODUCT = "nvidia.com/gpu.product"
"""The label by which NVIDIA's feature discovery tells models apart."""
PRETENDED = "tarragon.dev/pretended-devices"
"""Annotation of a node: resources whose devices it hands out by number though its machine has none."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """`capacity` is in thousandths, as `base.resources` has it; `shared` are resources whose requests are shares.

    `volumes` are folders for claims and volumes by name, `environments` folders for images by pattern, `images` the
    file that says the same of images at length. A pod's annotations may say more of both: see `launch`. At `address`
    and `port`, unless that is 0, the kubelet answers API servers: see `server`. An empty `pod_address` is not told.
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
    """CPUs and memory that this process may use, and the GPUs given."""
    offered = {CPU: cpus() * 1000, MEMORY: memory() * 1000, PODS: MOST_PODS * 1000}
    return offered | ({NVIDIA_GPU: len(gpus) * 1000} if gpus else {})


def cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """Bytes: the machine's, or less where a control group limits us."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [physical]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # none there, or `max`
            continue
    return min(limits)


_GPU = re.compile(r"GPU \d+: (.*) \(UUID: (GPU-[0-9a-f-]+)\)")


@dataclass(frozen=True, slots=True)
class Gpus:
    """Those of a machine, by UUID, in the order of the bus; `allowed` are those that this process may use."""

    models: Mapping[str, str] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()

    def labels(self, some: Sequence[str]) -> dict[str, str]:
        """As NVIDIA's feature discovery has it; nothing where there are several models."""
        found = {self.models[identity] for identity in some if identity in self.models}
        return {PRODUCT: re.sub(r"[^A-Za-z0-9_.-]+", "-", found.pop())} if len(found) == 1 else {}


def gpus_of_this_machine(environment: Mapping[str, str]) -> Gpus:
    """No more is allowed than our own CUDA_VISIBLE_DEVICES says. Waits for nvidia-smi."""
    command = ["nvidia-smi", "-L"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Gpus()
    found = {identity: model for model, identity in _GPU.findall(listed.stdout)} if listed.returncode == 0 else {}
    return Gpus(found, visible(list(found), environment.get("CUDA_VISIBLE_DEVICES")))


def visible(found: Sequence[str], allowed: str | None) -> tuple[str, ...]:
    """As CUDA reads the variable: numbers or beginnings of UUIDs; the first that is neither ends the list."""
    if allowed is None:
        return tuple(found)
    chosen: list[str] = []
    for word in (part.strip() for part in allowed.split(",")):
        fitting = [found[int(word)]] if word.isdigit() and int(word) < len(found) else []
        fitting = fitting or [identity for identity in found if word and identity.startswith(word)]
        if not fitting:
            break
        chosen += fitting[:1]
    return tuple(chosen)


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
        "conditions": [_condition(*said, now) for said in _CONDITIONS],
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
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "nobody looks at it on this node"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "nobody looks at it on this node"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "nobody looks at it on this node"),
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
    """Keeps the Node object there and Ready."""

    def __init__(self, cluster: Cluster, settings: NodeSettings, clock: Clock) -> None:
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._key = Key("", settings.name)
        self._since = ""
        self._told = asyncio.Event()

    async def told(self) -> None:
        """Return when the API knows the node as Ready for the first time."""
        await self._told.wait()

    async def run(self) -> None:
        """For ever."""
        pause = 1.0
        registered = False
        while True:
            try:
                if not registered:
                    await self._register()
                registered = True
                await self._beat()
                self._told.set()
                pause = self._settings.heartbeat_seconds
            except NotFound:
                registered, pause = False, 1.0
            except ApiError as error:
                pause = min(pause * 2, LONGEST_PAUSE, self._settings.heartbeat_seconds)
                _log.info("the node could not be reported", node=self._settings.name, error=str(error), pause=pause)
            await self._clock.sleep(pause)

    async def _register(self) -> None:
        settings = self._settings
        body = manifest(settings.name, settings.labels)
        # Each port of a process is a port of its own on the machine, whatever it is called in the pod.
        shared = {OVERCOMMIT: ",".join(sorted({*settings.shared, HOST_PORTS}))}
        pretended = {PRETENDED: ",".join(sorted(settings.pretended)) or None}
        metadata = {"labels": body["metadata"]["labels"], "annotations": {**shared, **pretended}}
        spec = {"taints": list(settings.taints)} if settings.taints else {}
        try:
            told = {name: value for name, value in metadata["annotations"].items() if value is not None}
            made = {**body["metadata"], **metadata, "annotations": told}
            await self._cluster.create(NODES, {**body, "metadata": made, "spec": spec})
        except AlreadyExists:
            await self._cluster.patch(NODES, self._key, {"metadata": metadata})

    async def _beat(self) -> None:
        now = timestamp(self._clock.now())
        self._since = self._since or now
        settings = self._settings
        told = status(settings.name, settings.capacity, now)
        for condition in told["conditions"]:
            condition["lastTransitionTime"] = self._since
        told["addresses"][0]["address"] = settings.address
        if settings.port:
            told["daemonEndpoints"] = {"kubeletEndpoint": {"Port": settings.port}}
        await self._cluster.patch(NODES, self._key, {"status": told}, subresource="status")
        if settings.has_lease:
            await self._renew()

    async def _renew(self) -> None:
        try:
            seconds = max(lease.LEASE_SECONDS, int(2 * self._settings.heartbeat_seconds))
            await lease.renew(self._cluster, self._settings.name, self._clock, seconds)
        except NotFound:  # an old cluster, or one without a node controller: the status is a heartbeat, too
            _log.debug("this cluster keeps no leases of nodes", node=self._settings.name)
        except Forbidden as error:
            _log.warning("the node's lease may not be renewed", node=self._settings.name, error=str(error))
