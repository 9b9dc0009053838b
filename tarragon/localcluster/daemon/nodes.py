"""The nodes of an embedded cluster: a kubelet for each that is wanted, an end for those that are not any more."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import NotFound
from tarragon.client.port import Cluster, DeleteOptions, LogOptions, Selection
from tarragon.kube.core import NODES, PODS
from tarragon.kube.meta import AnyObject, Key
from tarragon.localcluster.api import errors
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.presence import occupied
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.kubelet import Kubelet, end_everything
from tarragon.localcluster.kubelet.node.node import NodeSettings
from tarragon.localcluster.kubelet.pod.pod_logs import NodeLogs
from tarragon.localcluster.kubelet.streaming.streaming import Door
from tarragon.localcluster.kubelet.volumes.tokens import PodApi

log = structlog.get_logger(__name__)

Part = tuple[str, Callable[[], Coroutine[Any, Any, None]]]
"""Something that runs for ever: its name, and how to start it (again)."""


class Nodes:
    """`folder` holds a folder for each node that there is or was."""

    def __init__(self, cluster: Cluster, folder: Path, wanted: Sequence[NodeSettings], clock: Clock) -> None:
        self._cluster = cluster
        self._folder = folder
        self._wanted = wanted
        self._clock = clock
        self._kubelets: dict[str, Kubelet] = {}
        self.pod_api: PodApi | None = None
        """How containers reach the API; to be set before the parts run."""

    def parts(self) -> Iterator[Part]:
        for node in self._wanted:
            yield f"node {node.name}", functools.partial(self._run, node)

    async def end_pods(self) -> None:
        """End the containers of all pods, with the grace that each of them has, while the parts run."""
        await asyncio.gather(*(kubelet.end_all() for kubelet in self._kubelets.values()))

    def running(self) -> dict[str, Path]:
        """The folder of each container's run that goes on, by `UID/CONTAINER`."""
        return {
            f"{uid}/{container}": folder
            for kubelet in self._kubelets.values()
            for uid, runs in kubelet.running().items()
            for container, folder in runs.items()
        }

    async def read(self, pod: Mapping[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        """What a container of a pod that has a node has said; for `Api.pod_logs`."""
        node = str(pod["spec"].get("nodeName") or "")
        folder = self._place(node)
        if folder is None:
            raise errors.failure(503, "ServiceUnavailable", f"the node {node} is not one of this server")
        async for chunk in NodeLogs(NodeFolder(folder), self._clock).read(pod, options):
            yield chunk

    def door(self, pod: Mapping[str, Any]) -> Door:
        """The way into a pod that has a node; for `Api.pod_doors`."""
        node = str(pod["spec"].get("nodeName") or "")
        folder = self._place(node)
        if folder is None:
            raise errors.failure(503, "ServiceUnavailable", f"the node {node} is not one of this server")
        return Door(NodeFolder(folder), self._cluster)

    async def retire(self) -> None:
        """End what still runs on nodes that an earlier server had and this one has not, and say that they are gone.

        Their folders stay, for the logs in them.
        """
        wanted = {node.name for node in self._wanted}
        for folder in _folders(self._folder):
            if folder.name not in wanted:
                await end_everything(folder, self._clock)
                await self._remove(folder.name)

    async def _run(self, node: NodeSettings) -> None:
        kubelet = self._kubelets[node.name] = Kubelet(self._cluster, node, self._clock, self.pod_api)
        await kubelet.run()

    def _place(self, node: str) -> Path | None:
        known = {settings.name: settings.folder for settings in self._wanted}
        if node in known:
            return known[node]
        former = self._folder / node
        return former if former.is_dir() else None

    async def _remove(self, node: str) -> None:
        """The Node and its pods, as a Kubernetes does with a machine that does not come back. Finished pods stay."""
        with suppress(NotFound):
            await self._cluster.delete(NODES, Key("", node))
            log.info("a node is no more", node=node)
        unfinished = Selection(fields=f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed")
        for pod in (await self._cluster.list(PODS.reading(AnyObject), unfinished)).items:
            with suppress(NotFound):
                await self._cluster.delete(PODS, pod.metadata.key, DeleteOptions(uid=pod.metadata.uid, grace_seconds=0))


async def end_leftovers(home: Home, clock: Clock) -> None:
    """End what a killed server has left running, each container with its grace. The next server tells how they ended.

    Raises TarragonError when a server runs: then it is that one's business.
    """
    async with occupied(home, clock):
        await asyncio.gather(*(end_everything(folder, clock) for folder in _folders(home.nodes)))


def _folders(nodes: Path) -> list[Path]:
    """Of all nodes that there are or were; what nodes share begins with an underscore."""
    return [path for path in sorted(nodes.glob("[!_]*")) if path.is_dir()]
