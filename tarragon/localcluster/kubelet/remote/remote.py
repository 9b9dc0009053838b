"""A process kubelet as a node of a cluster that others run: heartbeats that count, a port for its logs and for exec."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError, TooManyRequests, Unavailable
from tarragon.client.port import Cluster
from tarragon.kube.core import CONFIG_MAPS
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.kubelet import Kubelet
from tarragon.localcluster.kubelet.node.node import NodeSettings
from tarragon.localcluster.kubelet.remote.server import Address, KubeletServer
from tarragon.localcluster.kubelet.volumes.sources import ConfigMap

HEARTBEAT_SECONDS = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
_AUTHORITIES = Key("kube-system", "extension-apiserver-authentication")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the node is reached, and whose client certificates count there: those of the cluster, if none are given."""

    address: str
    port: int = 0
    client_authority: bytes = b""


class RemoteNode:
    """`run` does the work until it is cancelled or `stop` is called; containers go on, and the next one takes them up.

    A stopped node says nothing of it, like a kubelet: it may be back before anybody misses it.
    """

    def __init__(self, cluster: Cluster, settings: NodeSettings, place: Place, clock: Clock) -> None:
        self._cluster = cluster
        self._place = place
        self._clock = clock
        self._folder = NodeFolder(settings.folder)
        self._settings = replace(
            settings,
            heartbeat_seconds=HEARTBEAT_SECONDS,
            has_lease=True,
            address=place.address,
            pod_address="" if ipaddress.ip_address(place.address).is_loopback else place.address,
        )
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()

    async def run(self, ready: Callable[[int], None]) -> None:
        """`ready` is told the port, 0 where there is none, once the node is Ready for the first time.

        Raises TarragonError when another kubelet runs in the node's folder, or nobody can listen at the address.
        """
        self._folder.prepare()
        server = KubeletServer(self._cluster, self._settings.name, self._folder, self._clock)
        port = await self._unless_stopped(self._open(server))
        if port is None:
            return
        kubelet = Kubelet(self._cluster, replace(self._settings, port=port), self._clock)
        helpers = [
            asyncio.create_task(self._tell(kubelet, port, ready)),
            asyncio.create_task(self._until_told(kubelet)),
        ]
        try:
            await kubelet.run()
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await server.stop()

    async def _tell(self, kubelet: Kubelet, port: int, ready: Callable[[int], None]) -> None:
        await kubelet.registration.told()
        ready(port)

    async def _until_told(self, kubelet: Kubelet) -> None:
        await self._stopped.wait()
        kubelet.stop()

    async def _open(self, server: KubeletServer) -> int:
        """Without knowing who may come in, nobody is let in."""
        authority = self._place.client_authority or await self._authority()
        if not authority:
            return 0
        address = Address(host=self._place.address, port=self._place.port, client_authority=authority)
        return await server.start(address, self._folder.path)

    async def _authority(self) -> bytes:
        """Waits for an API server that is not there: without it no pod could be told or started, either."""
        pause = FIRST_PAUSE
        while True:
            try:
                found = await self._cluster.get(CONFIG_MAPS.reading(ConfigMap), _AUTHORITIES)
            except (Unavailable, TooManyRequests) as error:
                _log.info("the node waits for its cluster", error=str(error), pause=pause)
                await self._clock.sleep(max(pause, error.retry_after))
                pause = min(pause * 2, LONGEST_PAUSE)
            except ApiError as error:
                _log.warning(
                    "kubectl logs and exec will not work for this node: it can't find out whose certificates to trust",
                    why=error.what,
                    remedy="give it the cluster's authority with --client-ca-file",
                )
                return b""
            else:
                return found.data.get("client-ca-file", "").encode()

    async def _unless_stopped(self, work: Coroutine[None, None, int]) -> int | None:
        doing, stopped = asyncio.ensure_future(work), asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((doing, stopped), return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else None
        finally:
            stopped.cancel()
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)
