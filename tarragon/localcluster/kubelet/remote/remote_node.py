"""Runs a process kubelet as a node of a cluster that others run: with a lease, and a port for logs and exec."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError, TooManyRequests, Unavailable
from tarragon.client.port import Client
from tarragon.kube.core import CONFIG_MAPS
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.kubelet import Kubelet
from tarragon.localcluster.kubelet.node.node import NodeSettings
from tarragon.localcluster.kubelet.remote.server import KubeletServer, ServerAddress
from tarragon.localcluster.kubelet.remote.token_requests import ApiTokenIssuer
from tarragon.localcluster.kubelet.volumes.sources import ConfigMap
from tarragon.localcluster.kubelet.volumes.tokens import ApiAccess

HEARTBEAT_SECONDS = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
_HTTPS_PORT = 443
_AUTHORITIES = Key("kube-system", "extension-apiserver-authentication")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEndpoint:
    """Where the node is reached. Clients need a certificate of `client_authority`, by default that of the cluster.

    Its pods reach the API server as the node does: `api_url`, with a certificate of `api_authority` (in PEM).
    """

    address: str
    port: int = 0
    client_authority: bytes = b""
    api_url: str
    api_authority: bytes = b""


class RemoteNode:
    """Runs the node until `run` is cancelled or `stop` is called. Containers keep running; the next `run` adopts them.

    Like a kubelet, a stopped node does not report that it stopped, as it may soon be back.
    """

    def __init__(self, cluster: Client, settings: NodeSettings, place: NodeEndpoint, clock: Clock) -> None:
        self._cluster = cluster
        self._place = place
        self._clock = clock
        self._folder = NodeFolder(settings.folder)
        self._settings = replace(
            settings,
            heartbeat_seconds=HEARTBEAT_SECONDS,
            renews_lease=True,
            address=place.address,
            pod_address="" if ipaddress.ip_address(place.address).is_loopback else place.address,
        )
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()

    async def run(self, ready: Callable[[int], None]) -> None:
        """Run the node. `ready` is called with the port (0 for none) once the node is Ready for the first time.

        Raises TarragonError when another kubelet runs this node, or the address cannot be listened on.
        """
        self._folder.prepare()
        server = KubeletServer(self._cluster, self._settings.name, self._folder, self._clock)
        port = await self._unless_stopped(self._start_server(server))
        if port is None:
            return
        kubelet = Kubelet(self._cluster, replace(self._settings, port=port), self._clock, self._pod_api())
        helpers = [
            asyncio.create_task(self._report_ready(kubelet, port, ready)),
            asyncio.create_task(self._stop_when_asked(kubelet)),
        ]
        try:
            await kubelet.run()
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await server.stop()

    def _pod_api(self) -> ApiAccess:
        url = urlsplit(self._place.api_url)
        return ApiAccess(
            host=url.hostname or "",
            port=url.port or _HTTPS_PORT,
            certificate_authority=self._place.api_authority,
            tokens=ApiTokenIssuer(self._cluster),
        )

    async def _report_ready(self, kubelet: Kubelet, port: int, ready: Callable[[int], None]) -> None:
        await kubelet.node_registration.became_ready()
        ready(port)

    async def _stop_when_asked(self, kubelet: Kubelet) -> None:
        await self._stopped.wait()
        kubelet.stop()

    async def _start_server(self, server: KubeletServer) -> int:
        """Start the server, and return its port; 0 without a client authority, as no client could be authenticated."""
        authority = self._place.client_authority or await self._authority()
        if not authority:
            return 0
        address = ServerAddress(host=self._place.address, port=self._place.port, client_authority=authority)
        return await server.start(address, self._folder.path)

    async def _authority(self) -> bytes:
        """The cluster's client authority; empty if it may not be read. Waits while the API server is unavailable."""
        pause = FIRST_PAUSE
        while True:
            try:
                config_map = await self._cluster.get(CONFIG_MAPS.with_model(ConfigMap), _AUTHORITIES)
            except (Unavailable, TooManyRequests) as error:
                _log.info("the node waits for its cluster", error=str(error), pause=pause)
                await self._clock.sleep(max(pause, error.retry_after))
                pause = min(pause * 2, LONGEST_PAUSE)
            except ApiError as error:
                _log.warning(
                    "kubectl logs and exec will not work for this node: it can't read the cluster's client authority",
                    why=error.summary,
                    remedy="pass the cluster's client authority with --client-ca-file",
                )
                return b""
            else:
                return config_map.data.get("client-ca-file", "").encode()

    async def _unless_stopped(self, work: Coroutine[None, None, int]) -> int | None:
        task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            stopped.cancel()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
