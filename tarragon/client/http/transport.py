"""Sends requests to an API server with aiohttp: connection pool, timeouts, retries, and errors of `client.errors`."""

from __future__ import annotations

import asyncio
import io
import os
import random
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection
from multidict import CIMultiDict
from yarl import URL

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.client.backoff import retry_delay
from tarragon.client.errors import ApiError, Unreachable, unavailable, unreachable
from tarragon.client.http import sockets
from tarragon.client.http.credentials import ClientIdentity, Credentials, StaticCredentials, authorization
from tarragon.client.http.error_decoding import error_from_response
from tarragon.client.http.server_warnings import ServerWarnings
from tarragon.client.http.tls import TlsContextCache

T = TypeVar("T")

_CONNECTIONS = 32
"""The maximum number of concurrent calls. More connections cost a server more than a client gains (measured)."""

_MAX_BYTES_AT_ONCE = 2**20
_CONNECT_SECONDS = 5.0
"""The timeout for TCP connections: it allows for two lost packets, and a user at a prompt won't wait longer."""
_TUNNEL_SECONDS = 60.0
"""The timeout for a connection through a proxy."""
_RESPONSE_SECONDS = 70.0
"""The timeout for a response: longer than the 60 s of kube-apiserver, so that the server's own error comes first."""
_CALL_SECONDS = 300.0
"""The timeout of a whole call. Nothing else detects a live peer that stops reading the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestConfig:
    """The address of an API server and how to connect to it. It depends on neither files nor environment variables.

    Certificates and the key are PEM. Without `ca_data` the system's authorities are trusted. `credentials`, if given,
    override the token and the client certificate, for identities that change. `headers` are added to each request.
    `proxy_url` is the URL of an HTTP proxy, with user and password if it requires them. For `user_agent` see the
    function of that name.
    """

    url: str
    ca_data: bytes = b""
    token: str = field(default="", repr=False)
    client_certificate: bytes = b""
    client_key: bytes = field(default=b"", repr=False)
    tls_server_name: str = ""
    skip_tls_verify: bool = False
    proxy_url: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = ()
    credentials: Credentials | None = field(default=None, repr=False)
    user_agent: str = "tarragon"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request. `path` comes from `Resource.path`. `silence` is the read timeout of a stream; None means no limit."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    read_timeout: float | None = None


class StreamReadTimeout(Unreachable):
    """The read timeout of an established stream has passed: the stream may be idle, or the connection dead."""


class Transport:
    """Sends requests. It must be closed, which ends every open stream with Unavailable."""

    def __init__(self, server: RestConfig, dice: random.Random, clock: Clock) -> None:
        self._server = server
        self._base = URL(server.url)
        self._proxy = _Proxy(server.proxy_url)
        self._dice = dice
        self._clock = clock
        self._credentials = server.credentials or StaticCredentials(
            ClientIdentity(authorization(server.token), server.client_certificate, server.client_key)
        )
        self._trust = TlsContextCache(server.ca_data, checks_nothing=server.skip_tls_verify)
        self._open_session: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(_CONNECTIONS)
        self._closed = False
        self._before_writing: Callable[[], None] | None = None
        self._warnings = ServerWarnings()
        self._sockets = sockets.SocketRegistry()

    def check_before_writes(self, check: Callable[[], None]) -> None:
        """Call `check` before each request but GET is sent, retries included. If it raises, nothing is sent."""
        self._before_writing = check

    def on_warning(self, handler: Callable[[str], None]) -> None:
        """Call `handler` with each warning of the server, once, usually to show it."""
        self._warnings.handler = handler

    async def close(self) -> None:
        self._closed = True
        if self._open_session is not None:
            await self._open_session.close()
            await self._sockets.close_all()

    async def call(self, request: Request) -> bytes:
        """Send a request and return the body of the response."""
        return await self._with_retries(request, self._call)

    async def stream(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Stream the response body in chunks of any size. Raises StreamReadTimeout if the read timeout passes."""
        response = await self._with_retries(request, self._begin)
        try:
            with self._errors_of(request):
                try:
                    async for chunk in response.content.iter_any():
                        yield chunk
                except TimeoutError as error:
                    raise StreamReadTimeout(_timed_out(self._server, request).status) from error
        finally:
            _abort(response)
            response.release()

    async def _with_retries(self, request: Request, attempt: Callable[[Request], Awaitable[T]]) -> T:
        number = 0
        while True:
            try:
                return await attempt(request)
            except ApiError as error:
                pause = retry_delay(request.method, error, number, self._dice)
                if pause is None or self._closed:
                    raise
            await self._clock.sleep(pause)
            number += 1

    async def _call(self, request: Request) -> bytes:
        limits = self._timeout(total=_CALL_SECONDS, silence=_RESPONSE_SECONDS)
        # Limit the connections here and not in aiohttp, so that `check_before_writes` runs right before a write.
        async with self._slots:
            response = await self._respond(request, limits)
            with self._errors_of(request):
                async with response:
                    return await response.read()

    async def _begin(self, request: Request) -> aiohttp.ClientResponse:
        return await self._respond(request, self._timeout(total=None, silence=request.read_timeout))

    def _timeout(self, *, total: float | None, silence: float | None) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(
            total=total,
            connect=_TUNNEL_SECONDS if self._proxy.url else None,
            sock_connect=_CONNECT_SECONDS,
            sock_read=silence,
        )

    def _session(self) -> aiohttp.ClientSession:
        """The session, created on first use because aiohttp requires a running event loop."""
        if self._closed:
            raise self._closed_error()
        if self._open_session is not None:
            return self._open_session
        self._open_session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=self._sockets.create_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_headers(self._server),
            request_class=_guarded(self._check),
            trust_env=False,
        )
        # aiohttp would resend a DELETE after a broken connection, and the second response would be NotFound.
        self._open_session._retry_connection = False  # noqa: SLF001 - aiohttp has no public option
        return self._open_session

    async def _respond(self, request: Request, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """The successful response to a request. After a 401, the identity is renewed once."""
        identity = await self._credentials.identity()
        with self._errors_of(request):
            response = await self._send(request, identity, limits)
            if response.status == 401:  # noqa: PLR2004
                refused = await error_from_response(response)
                renewed = await self._credentials.identity(identity)
                if renewed == identity:
                    raise refused
                response = await self._send(request, renewed, limits)
            self._warnings.take(response.headers.getall("Warning", ()))
            if response.status >= 300:  # noqa: PLR2004 - redirects are errors too
                raise await error_from_response(response)
        return response

    async def _send(
        self, request: Request, identity: ClientIdentity, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        headers = {"Content-Type": request.content_type} if request.body is not None else {}
        if identity.authorization:
            headers["Authorization"] = identity.authorization
        self._check(request.method)
        return await self._session().request(
            request.method,
            self._base.with_path(self._base.path.rstrip("/") + request.path).with_query(request.query),
            data=_payload(request.body),
            headers=headers,
            ssl=self._trust.context_for(identity) if self._base.scheme == "https" else True,
            proxy=self._proxy.url,
            proxy_headers=self._proxy.headers,
            timeout=limits,
            allow_redirects=False,
            server_hostname=self._server.tls_server_name or None,
        )

    def _check(self, method: str) -> None:
        if self._before_writing is not None and method != "GET":
            self._before_writing()

    @contextmanager
    def _errors_of(self, request: Request) -> Iterator[None]:
        """Raise network errors of the block as errors of `client.errors`."""
        try:
            yield
        except TimeoutError as error:
            raise _timed_out(self._server, request) from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise self._network_error(error) from error
        except RuntimeError as error:
            # aiohttp raises this to a reader between the close of the session and the end of the connection.
            if not self._closed:
                raise
            raise self._closed_error() from error

    def _closed_error(self) -> ApiError:
        return unreachable(f"the client of {self._server.url} is closed")

    def _network_error(self, error: Exception) -> ApiError:
        """The error with a message for users; aiohttp's own messages contain class names and tuples."""
        url = self._server.url
        match error:
            case aiohttp.ClientConnectorCertificateError():
                return unreachable(f"the certificate of {url} is not trusted: {error.certificate_error}")
            case aiohttp.ClientHttpProxyError():
                return unreachable(f"the proxy {self._proxy} rejected the connection to {url}: {error.message}")
            case aiohttp.ClientProxyConnectionError(os_error=OSError(errno=int(number))) if number > 0:
                return unreachable(f"cannot connect to the proxy {self._proxy} of {url}: {os.strerror(number)}")
            case aiohttp.ClientConnectorError(os_error=OSError(errno=int(number))) if number > 0:
                return unreachable(f"cannot connect to {url}: {os.strerror(number)}")
            case aiohttp.ClientConnectorError():
                return unreachable(f"cannot connect to {url}: {error.os_error}")
            case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError() | ConnectionError():
                return unavailable(f"{url} closed the connection before the response was complete")
            case _:
                return unavailable(f"the connection to {url} failed: {error}")


class _Proxy:
    """The address and credentials of a proxy. Its string form has no password, so that it can be logged."""

    def __init__(self, url: str) -> None:
        given = URL(url) if url else None
        self.url = given.with_user(None) if given else None
        self.headers: Mapping[str, str] | None = None
        if given is not None and given.user is not None:
            password = b64encode(f"{given.user}:{given.password or ''}".encode()).decode()
            self.headers = {"Proxy-Authorization": f"Basic {password}"}

    def __str__(self) -> str:
        return str(self.url)


def _headers(server: RestConfig) -> CIMultiDict[str]:
    return CIMultiDict(
        [
            ("Accept", "application/json"),
            ("User-Agent", server.user_agent),
            ("Accept-Encoding", "identity"),
            *server.headers,
        ]
    )


def _abort(response: aiohttp.ClientResponse) -> None:
    """Close an unfinished stream without the shutdown handshake of TLS: the peer may not respond."""
    connection = response.connection  # None if the stream has ended; its connection is in the pool by then
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def _timed_out(server: RestConfig, request: Request) -> Unreachable:
    return unreachable(f"{server.url} did not respond in time: {request.method} {request.path}")


def _guarded(check: Callable[[str], None]) -> type[aiohttp.ClientRequest]:
    """A request class that calls `check` again when it writes: the process may freeze while it connects."""

    class Guarded(aiohttp.ClientRequest):
        async def write_bytes(
            self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
        ) -> None:
            try:
                check(self.method)
            except TarragonError as error:
                assert conn.protocol is not None  # noqa: S101 - never None before the connection is released
                conn.protocol.set_exception(error)  # The reader of the response raises it.
                return
            await super().write_bytes(writer, conn, content_length)

    return Guarded


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    """The body as aiohttp takes it: large ones as a file, sent in chunks, because aiohttp warns about large bytes."""
    return body if body is None or len(body) <= _MAX_BYTES_AT_ONCE else io.BytesIO(body)


async def lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The complete lines of a stream, of any length: aiohttp's own reader fails above 128 kB, which a Secret may have.

    A rest without a line end is dropped, because a truncated line is not an event.
    """
    rest: list[bytes] = []
    async for chunk in chunks:
        *complete, tail = chunk.split(b"\n")
        if complete:
            first, *others = complete
            yield b"".join([*rest, first])
            for line in others:
                yield line
            rest.clear()
        if tail:
            rest.append(tail)
