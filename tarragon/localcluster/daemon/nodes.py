"""The nodes of an embedded cluster: kubelets of the configured nodes, and removal of nodes no longer configured."""

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
from tarragon.client.port import Client, DeleteOptions, LogOptions, Selector
from tarragon.kube.core import NODES, PODS
from tarragon.kube.meta import Key, PartialObjectMetadata
from tarragon.localcluster.api import errors
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import lock_home
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.kubelet import Kubelet, end_all_containers
from tarragon.localcluster.kubelet.node.node import NodeSettings
from tarragon.localcluster.kubelet.pod.pod_logs import NodeLogs
from tarragon.localcluster.kubelet.streaming.pod_access import PodAccess
from tarragon.localcluster.kubelet.volumes.tokens import ApiAccess

log = structlog.get_logger(__name__)

RestartableTask = tuple[str, Callable[[], Coroutine[Any, Any, None]]]
"""A task that runs for ever: its name, and a function that starts it, again after a failure."""


class LocalNodes:
    """The kubelets of the configured nodes. `folder` has a folder for each current and former node."""

    def __init__(self, cluster: Client, folder: Path, wanted: Sequence[NodeSettings], clock: Clock) -> None:
        self._cluster = cluster
        self._folder = folder
        self._configured = wanted
        self._clock = clock
        self._kubelets: dict[str, Kubelet] = {}
        self.pod_api: ApiAccess | None = None
        """How containers reach the API; set before the parts run."""

    def tasks(self) -> Iterator[RestartableTask]:
        for node in self._configured:
            yield f"node {node.name}", functools.partial(self._run, node)

    async def stop_pods(self) -> None:
        """Stop the containers of all pods, each with its grace period, while the parts run."""
        await asyncio.gather(*(kubelet.end_all() for kubelet in self._kubelets.values()))

    def running_containers(self) -> dict[str, Path]:
        """The folder of each running container, by `UID/CONTAINER`."""
        return {
            f"{uid}/{container}": folder
            for kubelet in self._kubelets.values()
            for uid, runs in kubelet.live_runs().items()
            for container, folder in runs.items()
        }

    async def read_log(self, pod: Mapping[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        """The log of a container of a scheduled pod; for `Api.pod_logs`."""
        node = str(pod["spec"].get("nodeName") or "")
        folder = self._folder_of(node)
        if folder is None:
            raise errors.failure(503, "ServiceUnavailable", f"the node {node} is not one of this server")
        async for chunk in NodeLogs(NodeFolder(folder), self._clock).read(pod, options):
            yield chunk

    def pod_streams(self, pod: Mapping[str, Any]) -> PodAccess:
        """Exec, attach and port-forward for a scheduled pod; for `Api.stream_servers`."""
        node = str(pod["spec"].get("nodeName") or "")
        folder = self._folder_of(node)
        if folder is None:
            raise errors.failure(503, "ServiceUnavailable", f"the node {node} is not one of this server")
        return PodAccess(NodeFolder(folder), self._cluster)

    async def remove_former_nodes(self) -> None:
        """Stop the containers of nodes that are no longer configured, and delete these nodes and their pods.

        The folders stay, for the logs in them.
        """
        wanted = {node.name for node in self._configured}
        for folder in _folders(self._folder):
            if folder.name not in wanted:
                await end_all_containers(folder, self._clock)
                await self._remove(folder.name)

    async def _run(self, node: NodeSettings) -> None:
        kubelet = self._kubelets[node.name] = Kubelet(self._cluster, node, self._clock, self.pod_api)
        await kubelet.run()

    def _folder_of(self, node: str) -> Path | None:
        known = {settings.name: settings.folder for settings in self._configured}
        if node in known:
            return known[node]
        former = self._folder / node
        return former if former.is_dir() else None

    async def _remove(self, node: str) -> None:
        """Delete the Node and its unfinished pods, as Kubernetes does when a machine does not come back."""
        with suppress(NotFound):
            await self._cluster.delete(NODES, Key("", node))
            log.info("deleted a node that is no longer configured", node=node)
        unfinished = Selector(field_selector=f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed")
        for pod in (await self._cluster.list(PODS.with_model(PartialObjectMetadata), unfinished)).items:
            with suppress(NotFound):
                await self._cluster.delete(
                    PODS, pod.metadata.key, DeleteOptions(uid=pod.metadata.uid, grace_period_seconds=0)
                )


async def stop_leftover_pods(home: Home, clock: Clock) -> None:
    """Stop containers that a killed server has left running, each with its grace period.

    The next server records their exit status. Raises TarragonError if a server runs, which must stop them itself.
    """
    async with lock_home(home, clock):
        await asyncio.gather(*(end_all_containers(folder, clock) for folder in _folders(home.nodes)))


def _folders(nodes: Path) -> list[Path]:
    """The folders of all current and former nodes. Folders that nodes share begin with an underscore."""
    return [path for path in sorted(nodes.glob("[!_]*")) if path.is_dir()]
