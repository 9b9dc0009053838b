"""Serves the reports of progress over HTTPS, with bounds on everything that a program may send."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import re
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog
from aiohttp import web

from tarragon.base.clock import Clock
from tarragon.client.port import Client
from tarragon.job.progress import MAX_BODY_BYTES
from tarragon.kube.codec import encode
from tarragon.kube.meta import JsonObject, Key
from tarragon.operator.progress.authority import ServerCertificate
from tarragon.operator.progress.receiver import Answer, ProgressReceiver, Report
from tarragon.plan.objects.progress import AUDIENCE

HANDSHAKE_SECONDS = 5.0
BODY_SECONDS = 5.0
CONNECTION_SECONDS = 20.0
"""A connection is closed after this long, whatever happens on it: most clients open one for each report."""
LINGERING_SECONDS = 2.0
"""How long the rest of a request that was refused is read, so that its sender sees the answer."""
MAX_CONNECTIONS = 500
CONNECTIONS_PER_SECOND = 200.0
"""Connections that are accepted in the long run; more are reset before their TLS handshake, which is most of the cost.

A client that is reset knows at once. One that waited would hold up its training.
"""
BURST = 400.0
_BACKLOG = 512
_PAUSE = 1.0
"""Seconds to wait when no connection can be accepted, as for want of file descriptors."""

_PATH = re.compile(rf"/apis/{re.escape(AUDIENCE)}/v1alpha1/namespaces/([^/]+)/([^/]+)/([^/]+)/status")
_NOT_FOUND = Answer(
    status=404, result="invalid", message="report with POST to the URL in the variable KUBEFLOW_TRAINER_SERVER_URL"
)
_TOO_LARGE = Answer(status=413, result="invalid", message=f"the body has more than {MAX_BODY_BYTES:,} bytes")
_BROKEN = Answer(status=400, result="invalid", message="the body did not arrive whole")
_FAILED = Answer(status=500, result="failed", message="the operator's log says what went wrong")
_TOO_SLOW = Answer(status=408, result="invalid", message=f"the body did not arrive within {BODY_SECONDS:g} s")

_SILENT = logging.getLogger(f"{__name__}.aiohttp")
_SILENT.disabled = True

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressOptions:
    """How progress is served. The first free one of `ports` is used; 0 is any.

    `url` is the address as pods see it; empty for that of the socket. `certificate` may be called again, to renew it.
    `on_listen` is given the port.
    """

    host: str
    ports: Sequence[int]
    url: str = ""
    certificate: Callable[[Client, dt.datetime], Awaitable[ServerCertificate]]
    on_listen: Callable[[int], None] = lambda _: None


class ProgressServer:
    """Listens for reports between `start` and `stop`."""

    def __init__(self, receiver: ProgressReceiver, options: ProgressOptions, clock: Clock) -> None:
        self._receiver = receiver
        self._options = options
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        # aiohttp would log a traceback for each request that is no HTTP, and any pod can send them.
        self._http = web.Server(
            self._handle, access_log=None, logger=_SILENT, auto_decompress=False, lingering_time=LINGERING_SECONDS
        )
        self._admission = _ConnectionLimit(clock)
        self._clock = clock
        self._accepting: asyncio.Task[None] | None = None
        self._handshakes: set[asyncio.Task[None]] = set()

    def use_certificate(self, certificate: ServerCertificate) -> None:
        """Use the certificate for all connections from now on. Raises OSError."""
        # Python loads certificates from files only. Nobody else can read this folder.
        with TemporaryDirectory(prefix="tarragon-") as folder:
            chain, key = Path(folder, "server.crt"), Path(folder, "server.key")
            chain.write_bytes(certificate.chain)
            key.write_bytes(certificate.key)
            self._tls.load_cert_chain(chain, key)

    def start(self) -> str:
        """Listen, and return the URL as pods see it. Raises OSError."""
        listening = _listen(self._options)
        port: int = listening.getsockname()[1]
        self._options.on_listen(port)
        self._accepting = asyncio.create_task(self._accept(listening))
        return self._options.url or f"https://{self._options.host}:{port}"

    async def stop(self) -> None:
        tasks = [*self._handshakes, *([] if self._accepting is None else [self._accepting])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._http.pre_shutdown()
        await self._http.shutdown(timeout=1.0)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listening)
                except OSError as error:
                    log.warning("no report can be received", error=str(error))
                    await self._clock.sleep(_PAUSE)
                    continue
                opened = len(self._handshakes) + len(self._http.connections)
                if opened >= MAX_CONNECTIONS or not self._admission.allow():
                    _reset(connection)
                    continue
                handshake = asyncio.create_task(self._serve(connection))
                self._handshakes.add(handshake)
                handshake.add_done_callback(self._handshakes.discard)

    async def _serve(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        try:
            transport, _ = await loop.connect_accepted_socket(
                self._http, connection, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
        except OSError as error:  # no TLS, or no trust in our authority
            log.debug("a handshake failed", error=str(error))
            connection.close()
        else:
            # aiohttp waits for ever for the end of a header.
            loop.call_later(CONNECTION_SECONDS, transport.abort)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            answer = await self._answer(request)
        except Exception:
            log.exception("unexpected error in a report")
            answer = _FAILED
        self._receiver.count(answer)
        body = answer.body if answer.body is not None else _failure(answer)
        headers = {"Retry-After": str(answer.retry_after)} if answer.retry_after else {}
        response = web.Response(
            status=answer.status, body=encode(body), content_type="application/json", headers=headers
        )
        response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> Answer:
        match = _PATH.fullmatch(request.path)
        if match is None or request.method != "POST":
            return _NOT_FOUND
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _read(request)
        except TimeoutError:
            return _TOO_SLOW
        except web.RequestPayloadError:
            return _BROKEN
        if body is None:
            return _TOO_LARGE
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else ""
        job = Key(match[1], match[3])
        return await self._receiver.receive(Report(plural=match[2], job=job, token=given, body=body))


class _ConnectionLimit:
    """A token bucket."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left = BURST
        self._as_of = clock.monotonic()

    def allow(self) -> bool:
        now = self._clock.monotonic()
        self._left = min(BURST, self._left + (now - self._as_of) * CONNECTIONS_PER_SECOND)
        self._as_of = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


def _listen(options: ProgressOptions) -> socket.socket:
    """Listen at the first free port. Raises OSError."""
    *preferred, last = options.ports
    for port in preferred:
        with suppress(OSError):
            return _listen_at(options.host, port)
    return _listen_at(options.host, last)


def _listen_at(host: str, port: int) -> socket.socket:
    """Listen at the port. No host means all interfaces, with IPv6 where the machine has it. Raises OSError."""
    if host or not socket.has_dualstack_ipv6():
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    else:
        listening = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
    listening.setblocking(False)
    return listening


def _reset(connection: socket.socket) -> None:
    """Close the connection so that the client gets an error at once."""
    with connection, suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def _read(request: web.BaseRequest) -> bytes | None:
    """Read the body; None if it is too large, in which case the rest is not read."""
    body = b""
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            return None
    return body


def _failure(answer: Answer) -> JsonObject:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": answer.status,
        "message": answer.message,
    }
