"""Finds the containers and ports of one node's pods for exec, attach and port-forward, from the node's folder alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tarragon.client.port import Client, Selector
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import SERVICES, Service
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.network.container_ports import listening_ports, routes_to
from tarragon.localcluster.kubelet.network.ports import allocated_ports
from tarragon.localcluster.kubelet.shim.shim_client import state_of

LOOPBACK_ADDRESSES = ("127.0.0.1", "::1")
Json = Mapping[str, Any]


class NotRunning(Exception):
    """The container does not run; the message is worded like the kubelet's."""


class PortNotOpen(Exception):
    """No process of the pod listens on the port; the message is worded like a container runtime's."""


class PodAccess:
    """Access to the pods of one node. `pod` is always the complete object of a pod of this node."""

    def __init__(self, folder: NodeFolder, cluster: Client) -> None:
        self._folder = folder
        self._cluster = cluster

    def run(self, pod: Json, container: str) -> Path:
        """The folder of the container's current run. Raises NotRunning."""
        folder = self._current_run(pod["metadata"]["uid"], container)
        if folder is None:
            raise NotRunning(f'container not found ("{container}")')
        return folder

    def _current_run(self, uid: str, container: str) -> Path | None:
        pod_folder = self._folder.pod(uid)
        numbers = pod_folder.run_numbers(container)
        if not numbers:
            return None
        folder = pod_folder.run(container, numbers[-1])
        state = state_of(folder)
        return folder if state and state.phase == "running" else None

    async def dial(self, pod: Json, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the process that serves the pod's port. Raises PortNotOpen."""
        metadata = pod["metadata"]
        listening = self._listening(metadata["uid"])
        refused = "connection refused"
        async for local in self._local_ports(pod, port):
            if local not in listening:
                continue
            for host in LOOPBACK_ADDRESSES:
                try:
                    return await asyncio.open_connection(host, local)
                except OSError as error:
                    refused = (error.strerror or str(error)).lower()
        raise PortNotOpen(
            f"error forwarding port {port} to pod {metadata['name']}, uid {metadata['uid']}: "
            f"failed to connect to localhost:{port} inside the pod: dial tcp 127.0.0.1:{port}: connect: {refused}"
        )

    def _listening(self, uid: str) -> frozenset[int]:
        names = self._folder.pod(uid).container_names()
        runs = [run for name in names if (run := self._current_run(uid, name))]
        return frozenset[int]().union(*map(listening_ports, runs))

    async def _local_ports(self, pod: Json, port: int) -> AsyncIterator[int]:
        """The port itself, then the local ports allocated for Services that lead to it."""
        yield port
        decoded = decode(encode(pod), Pod)
        services = (await self._cluster.list(SERVICES, Selector(namespace=decoded.metadata.namespace))).items
        for local in self._translated(decoded, port, services):
            yield local

    def _translated(self, pod: Pod, port: int, services: Sequence[Service]) -> Iterator[int]:
        by_name = {service.metadata.name: service for service in services}
        for address, local in allocated_ports(self._folder.home_nodes).items():
            service = by_name.get(address.service)
            if service is not None and routes_to(service, address, pod, port):
                yield local


PodAccessLookup = Callable[[Json], PodAccess]
"""Returns the access to the node of a pod. Raises ApiError if that node cannot be reached."""
