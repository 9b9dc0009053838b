"""`LocalCluster`: the store, API, HTTP server, controllers, scheduler and kubelets of one home, in one process."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import ssl
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.client.port import Client, Selector
from tarragon.kube.core import PODS, Pod
from tarragon.kube.meta import Key
from tarragon.localcluster.apiserver.apiserver import ApiServer, ServerConfig
from tarragon.localcluster.auth.keys import SigningKey
from tarragon.localcluster.auth.pod_accounts import PodTokens, ServiceAccountAdmission
from tarragon.localcluster.auth.reviews import reviews
from tarragon.localcluster.auth.service_account_tokens import TokenAuthority
from tarragon.localcluster.controllers.account_secrets import AccountSecretController
from tarragon.localcluster.controllers.claims import ClaimController
from tarragon.localcluster.controllers.garbage import GarbageCollector
from tarragon.localcluster.controllers.kinds import listable
from tarragon.localcluster.controllers.namespaces import NamespaceController
from tarragon.localcluster.controllers.pod_gc import PodGarbageCollector
from tarragon.localcluster.controllers.root_certificates import RootCertificateController
from tarragon.localcluster.controllers.service_accounts import ServiceAccountController
from tarragon.localcluster.controllers.supervisor import guarded
from tarragon.localcluster.controllers.taints import TaintController
from tarragon.localcluster.controllers.workloads.controllers import WorkloadControllers
from tarragon.localcluster.daemon.certificates import ensure_certificates
from tarragon.localcluster.daemon.nodes import LocalNodes, RestartableTask
from tarragon.localcluster.home.home import Home, unusable_home_error, write_private_file
from tarragon.localcluster.kubelet.base.spec import KUBELET_PODS
from tarragon.localcluster.kubelet.network.address_translation import ServiceAddress
from tarragon.localcluster.kubelet.network.ports import allocated_ports
from tarragon.localcluster.kubelet.node.node import NodeSettings
from tarragon.localcluster.kubelet.resources.sampler import UsageSampler
from tarragon.localcluster.kubelet.volumes.tokens import ApiAccess
from tarragon.localcluster.registry import metrics_api
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.registry.client import Binder, InProcessCluster
from tarragon.localcluster.registry.computed import ComputedKinds
from tarragon.localcluster.scheduler.scheduler import Scheduler
from tarragon.localcluster.services.endpoint_slices import EndpointSliceController
from tarragon.localcluster.services.endpoints import EndpointsController
from tarragon.localcluster.services.kubernetes_service import KubernetesServiceController
from tarragon.localcluster.services.proxy import ServiceProxy

PodPredicate = Callable[[Client, Pod], Coroutine[Any, Any, bool]]

BackgroundCoroutine = Callable[[Client], Coroutine[Any, Any, None]]
"""A coroutine that runs in the cluster's process with an in-process client. A companion never ends."""

_UNFINISHED = Selector(field_selector="status.phase!=Succeeded,status.phase!=Failed")
_EXTRA_SECONDS = 30.0
"""Added to the longest grace period: a kubelet kills a shim that has not ended its container within 20 seconds."""

log = structlog.get_logger(__name__)


async def not_left_over(_: Client, __: Pod) -> bool:
    """Every unfinished pod is wanted."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalClusterSettings:
    """The settings of a cluster. Without `nodes` it is an API in which no pod runs.

    With `port` None the server takes the port it had before, or a free one. It stops after `idle_seconds` without an
    unfinished pod or a request; None means never. Pods that are `left_over` do not count, and are stopped with it.
    `kubeconfig` is an additional file to write. `prepare` runs before the server is announced to clients, and installs
    the CRDs that they need.
    """

    home: Home
    nodes: Sequence[NodeSettings] = ()
    port: int | None = None
    idle_seconds: float | None = None
    left_over: PodPredicate = not_left_over
    kubeconfig: Path | None = None
    prepare: BackgroundCoroutine | None = None


@dataclass(frozen=True, slots=True)
class _Built:
    """The parts that exist before any task starts."""

    api: Api
    accounts: TokenAuthority
    nodes: LocalNodes
    server: ApiServer
    computed: ComputedKinds


class LocalCluster:
    """A running cluster, from `start` to `stop`. The caller must hold the home (`presence.lock_home`)."""

    def __init__(self, settings: LocalClusterSettings, clock: Clock, built: _Built) -> None:
        api = built.api
        self._settings = settings
        self._clock = clock
        self._api = api
        self._accounts = built.accounts
        self._server = built.server
        self._client = InProcessCluster(api, computed=built.computed)
        self._jitter = random.Random()
        self._kinds = listable(api.registry)
        self._nodes = built.nodes
        self._companions: list[asyncio.Task[None]] = []
        self._controllers: list[asyncio.Task[None]] = []
        self._kubelets: list[asyncio.Task[None]] = []

    @classmethod
    async def start(cls, settings: LocalClusterSettings, clock: Clock) -> LocalCluster:
        """Start a cluster, which serves requests on return. If it raises TarragonError, nothing is left running."""
        api = await Api.open(settings.home.store_path, clock)
        try:
            built = await _build(settings, clock, api)
        except BaseException:
            await api.close()
            raise
        cluster = cls(settings, clock, built)
        try:
            if settings.prepare is not None:
                await settings.prepare(cluster.client)
        except BaseException:
            await cluster.stop()
            raise
        cluster._run()
        return cluster

    def run_companions(self, companions: Sequence[BackgroundCoroutine]) -> None:
        """Run these beside the cluster until it stops, and again after each failure."""
        named_companions = [
            (f"companion {number}", functools.partial(companion, self._client))
            for number, companion in enumerate(companions)
        ]
        self._companions += self._started(named_companions)

    async def stop(self) -> None:
        """Answer open requests, store pending writes, and stop. Containers keep running; the next start adopts them."""
        for tasks in (self._companions, self._controllers, self._kubelets):
            await _cancel(tasks)
        await self._server.stop()
        await self._api.close()

    async def stop_pods(self) -> None:
        """Stop the containers of all pods, each with its grace period, and store their exit status."""
        # No controller may replace the pods that are being stopped.
        await _cancel(self._companions)
        await _cancel(self._controllers)
        unfinished = await self._client.list(KUBELET_PODS, _UNFINISHED)
        grace = max((pod.grace_seconds for pod in unfinished.items), default=0)
        try:
            async with asyncio.timeout(grace + _EXTRA_SECONDS):
                await self._nodes.stop_pods()
        except (TimeoutError, OSError):
            # Their shims still stop them; only their exit status is lost.
            log.exception("some pods did not stop in time", pods=len(unfinished.items))

    @property
    def client(self) -> Client:
        """An in-process client of the cluster."""
        return self._client

    @property
    def url(self) -> str:
        return self._server.url

    async def is_busy(self) -> bool:
        """Whether a pod is unfinished that is not left over, or a client reads a stream."""
        if self._server.open_streams > 0:
            return True
        for pod in (await self._client.list(PODS, _UNFINISHED)).items:
            if not await self._settings.left_over(self._client, pod):
                return True
        return False

    def last_request(self) -> float:
        return self._server.last_request

    def _run(self) -> None:
        self._kubelets = self._started(self._nodes.tasks())
        self._controllers = self._started(self._parts())

    def _started(self, parts: Iterable[RestartableTask]) -> list[asyncio.Task[None]]:
        guards = ((name, guarded(name, start, self._clock, self._jitter)) for name, start in parts)
        return [asyncio.create_task(guard, name=name) for name, guard in guards]

    def _parts(self) -> Iterator[RestartableTask]:
        """The controllers. Each start creates a new instance, because the state of a failed one may be wrong."""
        client, clock, jitter = self._client, self._clock, self._jitter
        authority = _authority(self._settings.home)
        yield "store compaction", self._api.maintain
        yield "removed nodes", self._retire_nodes
        yield "garbage collector", lambda: GarbageCollector(client, self._kinds, clock, jitter).run()
        yield "namespaces", lambda: NamespaceController(client, self._kinds, clock, jitter).run()
        yield "service accounts", lambda: ServiceAccountController(client, clock, jitter).run()
        yield "root certificates", lambda: RootCertificateController(client, authority, clock, jitter).run()
        yield "service account secrets", lambda: self._account_secrets().run()
        yield "taints", lambda: TaintController(client, clock, jitter).run()
        yield "pods of lost nodes", lambda: PodGarbageCollector(client, clock, jitter).run()
        yield "persistent volume claims", lambda: ClaimController(client, clock, jitter).run()
        yield "endpoints", lambda: EndpointsController(client, self._local_port, clock, jitter).run()
        yield "endpoint slices", lambda: EndpointSliceController(client, clock, jitter).run()
        yield "kubernetes service", lambda: KubernetesServiceController(client, self._port, clock, jitter).run()
        yield "service proxy", lambda: ServiceProxy(client, clock, jitter).run()
        yield "workloads", lambda: WorkloadControllers(client, clock, jitter).run()
        yield "scheduler", lambda: Scheduler(client, Binder(self._api).bind, clock, jitter).run()

    def _account_secrets(self) -> AccountSecretController:
        sign = self._accounts.issue_for_secret
        return AccountSecretController(self._client, sign, _authority(self._settings.home), self._clock, self._jitter)

    async def _retire_nodes(self) -> None:
        await self._nodes.remove_former_nodes()
        await asyncio.Event().wait()  # parts run for ever, but this is done once

    @property
    def _port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def _local_port(self, service: Key, port: int) -> int | None:
        address = ServiceAddress(namespace=service.namespace, name=service.name, port=port)
        return allocated_ports(self._settings.home.nodes).get(address)


async def _build(settings: LocalClusterSettings, clock: Clock, api: Api) -> _Built:
    accounts = TokenAuthority(api.committed_objects, SigningKey(settings.home.account_key), clock)
    api.set_pod_admission(ServiceAccountAdmission(api.committed_objects).admit)
    nodes = LocalNodes(InProcessCluster(api), settings.home.nodes, settings.nodes, clock)
    api.pod_logs = nodes
    api.stream_servers = nodes.pod_streams
    computed = _computed(api, accounts, nodes, clock)
    server = await _listen(settings, clock, api, accounts, computed)
    server_address = urlsplit(server.url)
    nodes.pod_api = ApiAccess(
        host=server_address.hostname or "",
        port=server_address.port or 0,
        certificate_authority=_authority(settings.home).encode(),
        tokens=PodTokens(accounts),
    )
    return _Built(api, accounts, nodes, server, computed)


def _authority(home: Home) -> str:
    """The certificate of the authority in PEM, without the note above it."""
    text = home.ca.read_text()
    return text[text.index("-----BEGIN") :]


def _computed(api: Api, accounts: TokenAuthority, nodes: LocalNodes, clock: Clock) -> ComputedKinds:
    measure = UsageSampler(nodes.running_containers, clock).sample
    return ComputedKinds(
        {
            **reviews(accounts),
            (metrics_api.GROUP, "nodes"): metrics_api.NodeMetrics(api, measure),
            (metrics_api.GROUP, "pods"): metrics_api.PodMetrics(api, measure),
        }
    )


async def _listen(
    settings: LocalClusterSettings, clock: Clock, api: Api, accounts: TokenAuthority, computed: ComputedKinds
) -> ApiServer:
    home = settings.home
    try:
        files = ensure_certificates(home, clock.now())
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(files.chain, files.key)
        token = home.read_token()
    except OSError as error:
        raise unusable_home_error(home.folder, error) from error
    for port in [settings.port] if settings.port is not None else [_last_port(home), 0]:
        server = ApiServer(api, clock, ServerConfig(token=token, port=port, tls=tls, accounts=accounts), computed)
        try:
            await server.start()
        except TarragonError:
            if port == 0 or settings.port is not None:
                raise
        else:
            with contextlib.suppress(OSError):  # on failure the next server only has another port
                write_private_file(home.port, server.url.rpartition(":")[2].encode())
            return server
    raise AssertionError("port 0 either works or raises")


def _last_port(home: Home) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(home.port.read_text())
    return 0


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
