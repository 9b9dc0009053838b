"""The kubelet's own HTTPS port, where an API server fetches what `kubectl logs` shows, and passes on exec and its kin.

Who comes must show a client certificate of the cluster's authority, and may read what the cluster says he may (by a
SubjectAccessReview about nodes/proxy, as a kubelet asks). Bearer tokens are not taken: an API server has a certificate.
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
from tarragon.client.port import Cluster, LogOptions
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key, Resource, Struct
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.paths import segments
from tarragon.localcluster.apiserver.http import answers, query
from tarragon.localcluster.apiserver.http.commands import Wanted
from tarragon.localcluster.apiserver.http.connection import Server
from tarragon.localcluster.apiserver.http.connects import Connects, ExecRequest
from tarragon.localcluster.apiserver.http.listener import Listener
from tarragon.localcluster.apiserver.http.streams import Streams
from tarragon.localcluster.home.home import write_private
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.pod.pod_logs import NodeLogs
from tarragon.localcluster.kubelet.streaming.streaming import Door

ALLOWED_SECONDS, REFUSED_SECONDS = 300.0, 30.0
"""How long an answer about somebody's rights is good, as long as with a kubelet."""
MOST_ANSWERS = 1000
_KEEP_ALIVE_SECONDS = 120.0
_SHUTDOWN_SECONDS = 1.0
_AUTHENTICATED = "system:authenticated"
_VERBS: Mapping[str, str] = MappingProxyType({"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update"})
_CONNECTS = frozenset({"exec", "attach", "portForward"})
_NOT_HERE = frozenset({"run", "cri"})


class _ReviewStatus(Struct, frozen=True):
    allowed: bool = False
    reason: str = ""


class Review(Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


REVIEWS = Resource(
    group="authorization.k8s.io",
    version="v1",
    plural="subjectaccessreviews",
    kind="SubjectAccessReview",
    model=Review,
    namespaced=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen, and whose certificates count (PEM). Port 0 is any free one."""

    host: str
    port: int
    client_authority: bytes


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    groups: tuple[str, ...]


class KubeletServer:
    """Serves the node's pods from `start` to `stop`. Its certificate is its own: an API server does not check it."""

    def __init__(self, cluster: Cluster, node: str, folder: NodeFolder, clock: Clock) -> None:
        self._cluster = cluster
        self._node = node
        self._logs = NodeLogs(folder, clock)
        self._door = Door(folder, cluster)
        self._clock = clock
        self._streams = Streams(clock)
        self._connects = Connects(self._streams)
        self._listener: Listener | None = None
        self._runner: web.ServerRunner | None = None
        self._rights: dict[tuple[Caller, str], tuple[bool, float]] = {}

    async def start(self, address: Address, folder: Path) -> int:
        """The port. The certificate lies in `folder`. Raises TarragonError when it cannot listen there."""
        tls = _context(address, folder, self._node, self._clock)
        server = Server(self._answer, access_log=None, keepalive_timeout=_KEEP_ALIVE_SECONDS)
        runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_SECONDS)
        await runner.setup()
        listener = Listener(server, tls)
        try:
            port = listener.start(address.host, address.port)
        except OSError as error:
            await runner.cleanup()
            raise TarragonError(
                f"nobody can listen at {address.host}:{address.port}",
                why=error.strerror or str(error),
                remedy="choose another with --address and --port; port 0 is any free one",
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

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        caller = _caller(request)
        if caller is None:
            return answers.text("Unauthorized", status=401)
        try:
            if not await self._may(caller, _VERBS.get(request.method, request.method.lower())):
                return answers.text(f"Forbidden (user={caller.name}, resource=nodes, subresource=proxy)", status=403)
            return await self._serve(request, segments(request.rel_url.raw_path))
        except ApiError as error:
            # In words only: an API server puts them into a Status of its own.
            return answers.text(error.what, status=error.code)

    async def _serve(self, request: web.BaseRequest, parts: Sequence[str]) -> web.StreamResponse:
        match parts:
            case ["healthz"]:
                return answers.text("ok")
            case ["containerLogs", namespace, name, container] if request.method == "GET":
                asked = dict(request.rel_url.query) | {"container": container}
                options, limit = query.log_options(asked, self._clock.now())
                return await self._streams.log(request, self._log(Key(namespace, name), options), limit)
            case [what, namespace, name, *more] if what in _CONNECTS and request.method in {"GET", "POST"}:
                return await self._connect(request, what, await self._pod(Key(namespace, name)), more)
            case [what, *_] if what in _NOT_HERE:
                return answers.text(f"{what} is not available on a node of processes", status=501)
            case _:
                return answers.text("404 page not found\n", status=404)

    async def _log(self, key: Key, options: LogOptions) -> AsyncIterator[bytes]:
        async for chunk in self._logs.read(await self._pod(key), options):
            yield chunk

    async def _pod(self, key: Key) -> dict[str, Any]:
        pod: dict[str, Any] = await self._cluster.get(PODS.reading(dict), key)
        if pod["spec"].get("nodeName") != self._node:
            raise errors.failure(404, "NotFound", f'pod "{key.name}" is not on node {self._node}')
        return pod

    async def _connect(
        self, request: web.BaseRequest, what: str, pod: dict[str, Any], more: Sequence[str]
    ) -> web.StreamResponse:
        """What follows the pod's name is its uid, which may be left out, and the container, which must not."""
        if what == "portForward":
            return await self._connects.forward(request, lambda port: self._door.dial(pod, port))
        if not more:
            raise errors.failure(404, "NotFound", "404 page not found")
        argv = request.query.getall("command", []) if what == "exec" else None
        asked = ExecRequest(pod=pod, container=more[-1], argv=argv, wanted=_wanted(request.query))
        return await self._connects.execute(request, self._door, asked)

    async def _may(self, caller: Caller, verb: str) -> bool:
        now = self._clock.monotonic()
        allowed, until = self._rights.get((caller, verb), (False, 0.0))
        if now < until:
            return allowed
        about = {"verb": verb, "version": "v1", "resource": "nodes", "subresource": "proxy", "name": self._node}
        spec = {"user": caller.name, "groups": [*caller.groups, _AUTHENTICATED], "resourceAttributes": about}
        body = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "spec": spec}
        allowed = (await self._cluster.create(REVIEWS, body)).status.allowed
        if len(self._rights) >= MOST_ANSWERS:
            self._rights.clear()
        self._rights[caller, verb] = (allowed, now + (ALLOWED_SECONDS if allowed else REFUSED_SECONDS))
        return allowed


def _wanted(asked: query.Query) -> Wanted:
    """In a kubelet's own names."""
    tty = query.flag(asked, "tty")
    return Wanted(
        stdin=query.flag(asked, "input"),
        stdout=query.flag(asked, "output"),
        stderr=query.flag(asked, "error") and not tty,
        tty=tty,
    )


def _caller(request: web.BaseRequest) -> Caller | None:
    """By the certificate, which the handshake has checked."""
    shown = request.get_extra_info("peercert")
    if not shown:
        return None
    fields = [pair for part in shown.get("subject", ()) for pair in part]
    names = [value for field, value in fields if field == "commonName"]
    groups = tuple(value for field, value in fields if field == "organizationName")
    return Caller(names[-1], groups) if names and names[-1] else None


def _context(address: Address, folder: Path, node: str, clock: Clock) -> ssl.SSLContext:
    # A tenth of a second that others need not wait.
    from tarragon.localcluster.home import certificate_authority  # noqa: PLC0415

    made = certificate_authority.new_kubelet(node, address.host, clock.now())
    chain, key = folder / "kubelet.crt", folder / "kubelet.key"
    write_private(key, made.key)
    write_private(chain, made.certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.minimum_version = ssl.TLSVersion.TLSv1_2
    tls.load_cert_chain(chain, key)
    try:
        tls.load_verify_locations(cadata=address.client_authority.decode())
    except (ssl.SSLError, ValueError) as error:
        raise TarragonError(
            "the authority of the cluster's client certificates cannot be read", why=str(error)
        ) from error
    # Optional, so that whoever has none is told 401 instead of a broken handshake.
    tls.verify_mode = ssl.CERT_OPTIONAL
    return tls


def way_to(host: str, port: int) -> str:
    """The address of this machine from which it reaches that one; nothing is sent."""
    for family, kind, proto, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
        with socket.socket(family, kind, proto) as probe:
            try:
                probe.connect(address)
            except OSError:
                continue
            return str(probe.getsockname()[0])
    raise TarragonError(f"this machine has no way to {host}", remedy="name its address with --address")
