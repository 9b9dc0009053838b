"""A kubelet with the in-process API and real processes; tests wait for states by watching the API."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tarragon.base.clock import Clock, SystemClock
from tarragon.client.errors import AlreadyExists
from tarragon.client.port import Client, DeleteOptions, LogOptions, Selector
from tarragon.kube.core import CONFIG_MAPS, EVENTS, NAMESPACES, NODES, PODS
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.kubelet import Kubelet
from tarragon.localcluster.kubelet.node.node import NodeSettings
from tarragon.localcluster.kubelet.pod.pod_logs import NodeLogs
from tarragon.localcluster.kubelet.shim import shim, shim_client
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.registry.client import InProcessCluster
from tests.localcluster.kubelet.builders import container_json, pod_json

Json = dict[str, Any]
ANY_POD = PODS.with_model(dict)
GI = 2**30 * 1000


class World:
    """One node `n` with 8 Gi and two GPUs, whose kubelet can be started and stopped."""

    def __init__(self, api: Api, folder: Path) -> None:
        self.api = api
        self.cluster = InProcessCluster(api)
        self.folder = folder
        self.kubelet: Kubelet | None = None
        self._running: asyncio.Task[None] | None = None

    @classmethod
    async def make(cls, folder: Path) -> World:
        world = cls(await Api.open(folder / "state.db", SystemClock()), folder)
        with contextlib.suppress(AlreadyExists):
            await world.cluster.create(NAMESPACES, {"metadata": {"name": "default"}})
        return world

    @property
    def node(self) -> Path:
        return self.folder / "node/n"

    @property
    def logs(self) -> NodeLogs:
        return NodeLogs(NodeFolder(self.node), SystemClock())

    def settings(self, **changes: Any) -> NodeSettings:
        defaults: dict[str, Any] = {
            "name": "n",
            "folder": self.node,
            "capacity": {"cpu": 4000, "memory": 8 * GI, "pods": 20_000, "nvidia.com/gpu": 2000},
            "overcommitted": frozenset({"cpu"}),
            "gpus": ("GPU-a", "GPU-b"),
            "port_registry": self.folder / "registry",
        }
        return NodeSettings(**(defaults | changes))

    def start_kubelet(self, clock: Clock | None = None, cluster: Client | None = None, **settings: Any) -> Kubelet:
        self.kubelet = Kubelet(cluster or self.cluster, self.settings(**settings), clock or SystemClock())
        self._running = asyncio.create_task(self.kubelet.run())
        return self.kubelet

    async def stop_kubelet(self) -> None:
        if self.kubelet and self._running:
            self.kubelet.stop()
            await self._running
            self.kubelet = self._running = None

    async def close(self) -> None:
        """Kill all processes that the test has left running."""
        try:
            await self.stop_kubelet()
        finally:
            identity = self.node / "identity"
            if identity.exists():
                shim_client.kill_marked(f"{shim.MARK_VARIABLE}={identity.read_text()}.".encode())
            await self.api.close()

    def processes(self) -> set[str]:
        """The identities of this node's containers that have processes."""
        identity = self.node / "identity"
        return shim_client.running_identities(f"{identity.read_text()}.") if identity.exists() else set()

    # --------------------------------------------------------------------------------------------------------- the API

    async def create(self, name: str = "p", *containers: Json, **spec: Any) -> Json:
        created: Json = await self.cluster.create(ANY_POD, pod_json(name, *containers, **spec))
        return created

    async def run(self, script: str, name: str = "p", **spec: Any) -> Json:
        """Create a pod with one container that runs a shell script."""
        fields = spec.pop("container", {})
        return await self.create(name, container_json(command=["sh", "-c", script], **fields), **spec)

    async def get(self, name: str = "p") -> Json:
        return await self.cluster.get(ANY_POD, Key("default", name))

    async def delete(self, name: str = "p", grace: int | None = None) -> None:
        await self.cluster.delete(ANY_POD, Key("default", name), DeleteOptions(grace_period_seconds=grace))

    async def config_map(self, name: str, **data: str) -> None:
        await self.cluster.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": "default"}, "data": data})

    async def until(self, holds: Callable[[Json], Any], name: str = "p") -> Json:
        """Wait for a state of the pod for which this holds, and return the pod."""
        selection = Selector(namespace="default", field_selector=f"metadata.name={name}")
        async with asyncio.timeout(60):
            listing = await self.cluster.list(ANY_POD, selection)
            for item in listing.items:
                if holds(item):
                    return item
            async for event in self.cluster.watch(ANY_POD, selection, listing.resource_version):
                if event.type in {"ADDED", "MODIFIED"} and event.object and holds(event.object):
                    return event.object
        raise AssertionError("the watch has ended")

    async def phase(self, phase: str, name: str = "p") -> Json:
        return await self.until(lambda pod: pod.get("status", {}).get("phase") == phase, name)

    async def waiting(self, reason: str, name: str = "p") -> str:
        """Wait until the container waits for this reason, and return its message."""
        pod = await self.until(lambda pod: state(pod).get("waiting", {}).get("reason") == reason, name)
        return str(state(pod)["waiting"].get("message", ""))

    async def vanished(self, name: str = "p") -> None:
        selection = Selector(namespace="default", field_selector=f"metadata.name={name}")
        async with asyncio.timeout(60):
            listing = await self.cluster.list(ANY_POD, selection)
            if listing.items:
                async for event in self.cluster.watch(ANY_POD, selection, listing.resource_version):
                    if event.type == "DELETED":
                        return

    async def log(self, name: str = "p", **options: Any) -> str:
        pod = await self.get(name)
        return b"".join([chunk async for chunk in self.logs.read(pod, LogOptions(**options))]).decode()

    async def says(self, text: str, name: str = "p") -> None:
        """Return when the container has printed this, by following its log."""
        await self.until(lambda pod: "running" in state(pod) or "terminated" in state(pod), name)
        received = b""
        async with asyncio.timeout(60):
            async for chunk in self.logs.read(await self.get(name), LogOptions(follow=True)):
                received += chunk
                if text.encode() in received:
                    return
        raise AssertionError(f"has ended with {received!r}")

    async def events(self, name: str = "p") -> list[tuple[str, str]]:
        """Reason and message of the pod's events, in order."""
        assert self.kubelet
        await self.kubelet.recorder.flushed()
        listing = await self.cluster.list(EVENTS.with_model(dict), Selector(namespace="default"))
        about = [each for each in listing.items if each["involvedObject"]["name"] == name]
        return [(each["reason"], each["message"]) for each in about]

    async def event(self, reason: str, words: str = "") -> str:
        """Wait for an event of this reason with these words, and return its message."""
        selection = Selector(namespace="default", field_selector=f"reason={reason}")
        async with asyncio.timeout(60):
            listing = await self.cluster.list(EVENTS.with_model(dict), selection)
            for event in listing.items:
                if words in event["message"]:
                    return str(event["message"])
            async for change in self.cluster.watch(EVENTS.with_model(dict), selection, listing.resource_version):
                if change.object and words in change.object.get("message", ""):
                    return str(change.object["message"])
        raise AssertionError("the watch has ended")

    async def node_object(self) -> Json:
        return await self.cluster.get(NODES.with_model(dict), Key("", "n"))


def state(pod: Json, container: int = 0) -> Json:
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    result: Json = statuses[container].get("state") or {}
    return result


def terminated(pod: Json) -> Json:
    result: Json = state(pod)["terminated"]
    return result
