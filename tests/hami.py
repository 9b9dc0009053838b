"""A stand-in for HAMi's scheduler: an extender that chooses devices as HAMi does in 2026, and nodes that have some.

HAMi itself is not run by our tests. What is here follows its documentation and the reasons that its scheduler gives; it
knows nothing of Tarragon, and is told nothing but what pods and nodes say.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tarragon.base.quantity import parse_milli
from tarragon.client.errors import ApiError
from tarragon.client.port import Client
from tarragon.kube.core import NODES, PODS
from tarragon.kube.meta import Key, Resource

Json = dict[str, Any]
REGISTER = "hami.io/node-nvidia-register"
CHOSEN = "hami.io/vgpu-devices-allocated"
USE = "nvidia.com/use-gpuuuid"
SCHEDULER = "hami-scheduler"
BINDINGS: Resource[Json] = Resource(group="", version="v1", plural="bindings", kind="Binding", model=dict)
SPLIT = 10
"""How often HAMi's device plugin offers each GPU by default."""
MANAGED = ("gpu", "gpumem", "gpucores", "gpumem-percentage", "priority")
"""The resources that HAMi's chart takes from kube-scheduler."""


def uuid(node: str, index: int) -> str:
    """Of a GPU that nobody has ever built."""
    return f"GPU-{index:08x}-0000-0000-0000-{node.encode().hex()[:12]:0>12}"


def registered(node: str, gpus: int, mib: int = 16384, faulty: Sequence[int] = ()) -> str:
    """The annotation of a node with that many GPUs."""
    common = {"count": SPLIT, "devmem": mib, "devcore": 100, "type": "NVIDIA-A10", "mode": "hami-core"}
    healthy = [{"health": True} if index not in faulty else {} for index in range(gpus)]
    return json.dumps([{"id": uuid(node, index), "index": index, **common, **healthy[index]} for index in range(gpus)])


@dataclass(slots=True)
class Device:
    """A GPU and what pods have of it."""

    uuid: str
    memory: int
    is_healthy: bool
    pods: int = 0
    memory_used: int = 0
    cores_used: int = 0

    def refusal(self, memory: int, cores: int) -> str:
        """Why there is no room, in HAMi's words."""
        if not self.is_healthy:
            return "CardNotHealth"
        if self.pods >= SPLIT:
            return "CardTimeSlicingExhausted"
        if memory > self.memory - self.memory_used:
            return "CardInsufficientMemory"
        if cores > 100 - self.cores_used:
            return "CardInsufficientCore"
        if cores == 100 and self.pods:
            return "ExclusiveDeviceAllocateConflict"
        return "CardComputeUnitsExhausted" if not cores and self.cores_used == 100 else ""


def devices_of(node: Json, pods: Sequence[Json]) -> dict[str, Device]:
    """The devices of a node, with what these pods have of them. Pods that have finished have nothing."""
    text = node["metadata"].get("annotations", {}).get(REGISTER, "[]")
    found = {
        each["id"]: Device(each["id"], each["devmem"], bool(each.get("health"))) for each in json.loads(text or "[]")
    }
    for pod in pods:
        if pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
            for name, memory, cores in taken(pod):
                if name in found:
                    found[name].pods += 1
                    found[name].memory_used += memory
                    found[name].cores_used += cores
    return found


def taken(pod: Json) -> Iterator[tuple[str, int, int]]:
    """What HAMi has chosen for a pod: UUID, MiB and percent."""
    for container in pod["metadata"].get("annotations", {}).get(CHOSEN, "").split(";"):
        for entry in filter(None, container.split(":")):
            name, _, memory, cores = entry.split(",")
            yield name, int(memory), int(cores)


def choose(pod: Json, devices: Mapping[str, Device]) -> tuple[str, str]:
    """The annotation with the choice, or why there is none."""
    wanted = pod["metadata"].get("annotations", {}).get(USE)
    allowed = list(devices) if wanted is None else wanted.split(",")
    text = ""
    for container in pod["spec"]["containers"]:
        limits = (container.get("resources") or {}).get("limits") or {}
        number, cores = _number(limits.get("nvidia.com/gpu", 0)), _number(limits.get("nvidia.com/gpucores", 0))
        reasons = []
        for device in sorted(devices.values(), key=lambda each: each.uuid):
            if not number:
                break
            percent = _number(limits.get("nvidia.com/gpumem-percentage", 100))
            memory = _number(limits.get("nvidia.com/gpumem", 0)) or device.memory * percent // 100
            why = device.refusal(memory, cores) if device.uuid in allowed else "CardUuidMismatch"
            if why:
                reasons.append(why)
                continue
            device.pods, number = device.pods + 1, number - 1
            device.memory_used += memory
            device.cores_used += cores
            text += f"{device.uuid},NVIDIA,{memory},{cores}:"
        if number:
            return "", ", ".join(f"{reasons.count(why)}/{len(devices)} {why}" for why in sorted(set(reasons)))
        text += ";"
    return text, ""


def _number(quantity: str | int) -> int:
    """API servers write 4000 as 4k."""
    return parse_milli(quantity) // 1000


@dataclass(slots=True)
class HamiScheduler:
    """Chooses devices for pods and binds them, one at a time."""

    client: Client
    refusals: list[str] = field(default_factory=list)
    bound: list[str] = field(default_factory=list)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def filter(self, pod: Json, names: Sequence[str]) -> tuple[str, Mapping[str, str]]:
        """The node for the pod, or why it fits nowhere, by node."""
        async with self._lock:
            failed: dict[str, str] = {}
            pods = (await self.client.list(PODS.with_model(dict))).items
            key = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
            others = [each for each in pods if Key(each["metadata"]["namespace"], each["metadata"]["name"]) != key]
            for name in names:
                node = await self.client.get(NODES.with_model(dict), Key("", name))
                text, failed[name] = choose(pod, devices_of(node, others))
                if text:
                    patch = {"metadata": {"uid": pod["metadata"]["uid"], "annotations": {CHOSEN: text}}}
                    await self.client.patch(PODS.with_model(dict), key, patch)
                    return name, {}
            self.refusals += [f"{key.name}: {why}" for why in failed.values()]
            return "", failed

    async def bind(self, key: Key, uid: str, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        metadata = {"name": key.name, "namespace": key.namespace, "uid": uid}
        await self.client.create(BINDINGS, {"metadata": metadata, "target": target})
        self.bound.append(key.name)


@asynccontextmanager
async def an_extender(scheduler: HamiScheduler) -> AsyncIterator[str]:
    """The same, for a kube-scheduler. Yields its address."""

    async def answer_filter(request: web.Request) -> web.Response:
        asked = {name.lower(): value for name, value in (await request.json()).items()}
        node, failed = await scheduler.filter(asked["pod"], asked["nodenames"] or [])
        return web.json_response({"NodeNames": [node] if node else [], "FailedNodes": dict(failed)})

    async def answer_bind(request: web.Request) -> web.Response:
        asked = {name.lower(): value for name, value in (await request.json()).items()}
        try:
            await scheduler.bind(Key(asked["podnamespace"], asked["podname"]), asked["poduid"], asked["node"])
        except ApiError as error:
            return web.json_response({"Error": str(error)})
        return web.json_response({"Error": ""})

    app = web.Application()
    app.add_routes([web.post("/filter", answer_filter), web.post("/bind", answer_bind)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]  # noqa: SLF001 - aiohttp tells no other way
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


def scheduler_config(kubeconfig: str, extender: str, minor: int) -> Json:
    """Of the kube-scheduler that HAMi's chart starts beside its extender."""
    version = "v1" if minor >= 25 else "v1beta1"
    resources = [{"name": f"nvidia.com/{name}", "ignoredByScheduler": True} for name in MANAGED]
    return {
        "apiVersion": f"kubescheduler.config.k8s.io/{version}",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": kubeconfig},
        "profiles": [{"schedulerName": SCHEDULER}],
        "extenders": [
            {
                "urlPrefix": extender,
                "filterVerb": "filter",
                "bindVerb": "bind",
                "nodeCacheCapable": True,
                "weight": 1,
                "httpTimeout": "30s",
                "managedResources": resources,
            }
        ],
    }
