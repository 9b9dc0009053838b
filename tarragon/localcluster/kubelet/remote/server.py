"""The kubelet's HTTPS server, through which an API server fetches logs and forwards exec, attach and port-forward.

A client must have a certificate of the cluster's client authority. It is authorized by a SubjectAccessReview for
nodes/proxy, as with the kubelet. Bearer tokens are not accepted, as an API server has a certificate.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from aiohttp import web

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.client.errors import ApiError
from tarragon.client.port import Client, LogOptions
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key, PartialObject, Resource
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.paths import segments
from tarragon.localcluster.apiserver.http import query, responses
from tarragon.localcluster.apiserver.http.connection import Server
from tarragon.localcluster.apiserver.http.exec_clients import RequestedStreams
from tarragon.localcluster.apiserver.http.listener import Listener
from tarragon.localcluster.apiserver.http.streaming import Connects, ExecRequest
from tarragon.localcluster.apiserver.http.streams import Streams
from tarragon.localcluster.home.home import write_private_file
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.pod.pod_logs import NodeLogs
from tarragon.localcluster.kubelet.streaming.pod_access import PodAccess

ALLOWED_SECONDS, REFUSED_SECONDS = 300.0, 30.0
"""How long an authorization decision is cached: the kubelet's defaults."""
MAX_CACHED_DECISIONS = 1000
_KEEP_ALIVE_SECONDS = 120.0
_SHUTDOWN_SECONDS = 1.0
_AUTHENTICATED = "system:authenticated"
_VERBS: Mapping[str, str] = MappingProxyType({"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update"})
_CONNECTS = frozenset({"exec", "attach", "portForward"})
_UNSUPPORTED = frozenset({"run", "cri"})


class _ReviewStatus(PartialObject, frozen=True):
    allowed: bool = False
    reason: str = ""


class AccessReviewResult(PartialObject, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


REVIEWS = Resource(
    group="authorization.k8s.io",
    version="v1",
    plural="subjectaccessreviews",
    kind="SubjectAccessReview",
    model=AccessReviewResult,
    namespaced=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where to listen, and the authority of client certificates (PEM). Port 0 is any free port."""

    host: str
    port: int
    client_authority: bytes


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    groups: tuple[str, ...]


class KubeletServer:
    """Serves the node's pods from `start` to `stop`. An API server does not verify its certificate."""

    def __init__(self, cluster: Client, node: str, folder: NodeFolder, clock: Clock) -> None:
        self._cluster = cluster
        self._node = node
        self._logs = NodeLogs(folder, clock)
        self._pod_access = PodAccess(folder, cluster)
        self._clock = clock
        self._streams = Streams(clock)
        self._connects = Connects(self._streams)
        self._listener: Listener | None = None
        self._runner: web.ServerRunner | None = None
        self._decisions: dict[tuple[Caller, str], tuple[bool, float]] = {}

    async def start(self, address: ServerAddress, folder: Path) -> int:
        """Listen, and return the port. The certificate is in `folder`. Raises TarragonError if it cannot listen."""
        tls = _tls_context(address, folder, self._node, self._clock)
        server = Server(self._handle, access_log=None, keepalive_timeout=_KEEP_ALIVE_SECONDS)
        runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_SECONDS)
        await runner.setup()
        listener = Listener(server, tls)
        try:
            port = listener.start(address.host, address.port)
        except OSError as error:
            await runner.cleanup()
            raise TarragonError(
                f"cannot listen on {address.host}:{address.port}",
                why=error.strerror or str(error),
                remedy="choose another with --address and --port; port 0 is any free port",
            ) from error
        self._runner, self._listener = runner, listener
        return port

    async def stop(self) -> None:
        if self._runner is None or self._listener is None:
            return
        runner, self._runner = self._runner, None
        await self._listener.stop()
        self._streams.end_all()
        await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        caller = _caller(request)
        if caller is None:
            return responses.text("Unauthorized", status=401)
        try:
            if not await self._is_allowed(caller, _VERBS.get(request.method, request.method.lower())):
                return responses.text(f"Forbidden (user={caller.name}, resource=nodes, subresource=proxy)", status=403)
            return await self._serve(request, segments(request.rel_url.raw_path))
        except ApiError as error:
            # Plain text, which an API server wraps into a Status.
            return responses.text(error.summary, status=error.code)

    async def _serve(self, request: web.BaseRequest, parts: Sequence[str]) -> web.StreamResponse:
        match parts:
            case ["healthz"]:
                return responses.text("ok")
            case ["containerLogs", namespace, name, container] if request.method == "GET":
                parameters = dict(request.rel_url.query) | {"container": container}
                options, limit = query.log_options(parameters, self._clock.now())
                return await self._streams.log(request, self._log(Key(namespace, name), options), limit)
            case [operation, namespace, name, *rest] if operation in _CONNECTS and request.method in {"GET", "POST"}:
                return await self._connect(request, operation, await self._pod(Key(namespace, name)), rest)
            case [operation, *_] if operation in _UNSUPPORTED:
                return responses.text(f"{operation} is not available on a process node", status=501)
            case _:
                return responses.text("404 page not found\n", status=404)

    async def _log(self, key: Key, options: LogOptions) -> AsyncIterator[bytes]:
        async for chunk in self._logs.read(await self._pod(key), options):
            yield chunk

    async def _pod(self, key: Key) -> dict[str, Any]:
        pod: dict[str, Any] = await self._cluster.get(PODS.with_model(dict), key)
        if pod["spec"].get("nodeName") != self._node:
            raise errors.failure(404, "NotFound", f'pod "{key.name}" is not on node {self._node}')
        return pod

    async def _connect(
        self, request: web.BaseRequest, operation: str, pod: dict[str, Any], rest: Sequence[str]
    ) -> web.StreamResponse:
        """Serve exec, attach or port-forward. `rest` of the path is an optional uid, and the container."""
        if operation == "portForward":
            return await self._connects.forward(request, lambda port: self._pod_access.dial(pod, port))
        if not rest:
            raise errors.failure(404, "NotFound", "404 page not found")
        argv = request.query.getall("command", []) if operation == "exec" else None
        exec_request = ExecRequest(pod=pod, container=rest[-1], argv=argv, wanted=_wanted(request.query))
        return await self._connects.execute(request, self._pod_access, exec_request)

    async def _is_allowed(self, caller: Caller, verb: str) -> bool:
        now = self._clock.monotonic()
        allowed, until = self._decisions.get((caller, verb), (False, 0.0))
        if now < until:
            return allowed
        attributes = {"verb": verb, "version": "v1", "resource": "nodes", "subresource": "proxy", "name": self._node}
        spec = {"user": caller.name, "groups": [*caller.groups, _AUTHENTICATED], "resourceAttributes": attributes}
        body = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "spec": spec}
        allowed = (await self._cluster.create(REVIEWS, body)).status.allowed
        if len(self._decisions) >= MAX_CACHED_DECISIONS:
            self._decisions.clear()
        self._decisions[caller, verb] = (allowed, now + (ALLOWED_SECONDS if allowed else REFUSED_SECONDS))
        return allowed


def _wanted(parameters: query.Query) -> RequestedStreams:
    """The requested streams, by the kubelet's parameter names."""
    tty = query.flag(parameters, "tty")
    return RequestedStreams(
        stdin=query.flag(parameters, "input"),
        stdout=query.flag(parameters, "output"),
        stderr=query.flag(parameters, "error") and not tty,
        tty=tty,
    )


def _caller(request: web.BaseRequest) -> Caller | None:
    """The caller named by the client certificate, which the TLS handshake has verified."""
    certificate = request.get_extra_info("peercert")
    if not certificate:
        return None
    fields = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for field, value in fields if field == "commonName"]
    groups = tuple(value for field, value in fields if field == "organizationName")
    return Caller(names[-1], groups) if names and names[-1] else None


def _tls_context(address: ServerAddress, folder: Path, node: str, clock: Clock) -> ssl.SSLContext:
    # Imported late, as the import takes a tenth of a second.
    from tarragon.base import certificate_authority  # noqa: PLC0415

    new = certificate_authority.new_kubelet(node, address.host, clock.now())
    chain, key = folder / "kubelet.crt", folder / "kubelet.key"
    write_private_file(key, new.key)
    write_private_file(chain, new.certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.minimum_version = ssl.TLSVersion.TLSv1_2
    tls.load_cert_chain(chain, key)
    try:
        tls.load_verify_locations(cadata=address.client_authority.decode())
    except (ssl.SSLError, ValueError) as error:
        raise TarragonError(
            "the authority of the cluster's client certificates cannot be read", why=str(error)
        ) from error
    # Optional, so that a client without a certificate gets a 401 instead of a failed handshake.
    tls.verify_mode = ssl.CERT_OPTIONAL
    return tls


def source_address(host: str, port: int) -> str:
    """The source address of this machine on the route to the host; nothing is sent."""
    for family, kind, proto, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
        with socket.socket(family, kind, proto) as probe:
            try:
                probe.connect(address)
            except OSError:
                continue
            return str(probe.getsockname()[0])
    raise TarragonError(f"this machine has no route to {host}", remedy="set this machine's address with --address")
