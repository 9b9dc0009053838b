"""Requests to one API server over aiohttp: pooled, with deadlines, every failure one of `cluster.errors`."""

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
from tarragon.client.errors import ApiError, Unreachable, unavailable, unreachable
from tarragon.client.http import retries, sockets
from tarragon.client.http.credentials import Credentials, Fixed, Identity, authorization
from tarragon.client.http.error_decoding import refusal
from tarragon.client.http.tls import Trust

T = TypeVar("T")

_CONNECTIONS = 32
"""More of them cost a server more than they give a client (measured)."""

_SENT_AT_ONCE = 2**20
_CONNECT_SECONDS = 5.0
"""Long enough for two packets that got lost on the way, and as long as somebody at a prompt waits without a word."""
_TUNNEL_SECONDS = 60.0
"""How long a proxy may take to let us through."""
_ANSWER_SECONDS = 70.0
"""kube-apiserver itself gives up on a plain request after 60 s and says so: let its words come first."""
_CALL_SECONDS = 300.0
"""For all of a call. Nothing else notices a peer that lives and takes no more of what we send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where an API server is and how to be let in; everything as data, so that it never depends on files or variables.

    Certificates and the key are PEM. Without `ca_data` the system's authorities decide. `credentials`, where they are
    given, decide instead of token and client certificate: for whoever's identity changes. `headers` go with each
    request. `proxy_url` is of an HTTP proxy, with its user and password if it wants them. `user_agent` names us in the
    server's audit log; the function of that name writes it.
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
    """One call. The path is `Resource.path`; `silence`: the seconds a stream may bring nothing, None for ever."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    silence: float | None = None


class Silent(Unreachable):
    """A stream that had begun brought nothing for as long as its request allows: it may be quiet, or dead."""


class Transport:
    """Sends requests. Must be closed; then every stream that is still open ends with Unavailable."""

    def __init__(self, server: Server, dice: random.Random, clock: Clock) -> None:
        self._server = server
        self._base = URL(server.url)
        self._proxy = _Proxy(server.proxy_url)
        self._dice = dice
        self._clock = clock
        self._credentials = server.credentials or Fixed(
            Identity(authorization(server.token), server.client_certificate, server.client_key)
        )
        self._trust = Trust(server.ca_data, checks_nothing=server.skip_tls_verify)
        self._opened: aiohttp.ClientSession | None = None
        self._turns = asyncio.Semaphore(_CONNECTIONS)
        self._closed = False
        self._before_writing: Callable[[], None] | None = None
        self._sockets = sockets.Sockets()

    def guard(self, check: Callable[[], None]) -> None:
        """Before everything but a GET is sent, each repetition too: what it raises is raised instead of sending."""
        self._before_writing = check

    async def close(self) -> None:
        self._closed = True
        if self._opened is not None:
            await self._opened.close()
            await self._sockets.end()

    async def call(self, request: Request) -> bytes:
        """The body of the answer."""
        return await self._persist(request, self._call)

    async def stream(self, request: Request) -> AsyncGenerator[bytes, None]:
        """The body in pieces as they come, cut anywhere. Raises Silent in the middle of it."""
        response = await self._persist(request, self._begin)
        try:
            with self._told(request):
                try:
                    async for chunk in response.content.iter_any():
                        yield chunk
                except TimeoutError as error:
                    raise Silent(_late(self._server, request).status) from error
        finally:
            _hang_up(response)
            response.release()

    async def _persist(self, request: Request, attempt: Callable[[Request], Awaitable[T]]) -> T:
        number = 0
        while True:
            try:
                return await attempt(request)
            except ApiError as error:
                pause = retries.pause(request.method, error, number, self._dice)
                if pause is None or self._closed:
                    raise
            await self._clock.sleep(pause)
            number += 1

    async def _call(self, request: Request) -> bytes:
        limits = self._limits(total=_CALL_SECONDS, silence=_ANSWER_SECONDS)
        # The turn is waited for here, not within aiohttp: whoever guards writes is asked when they are really sent.
        async with self._turns:
            response = await self._answer(request, limits)
            with self._told(request):
                async with response:
                    return await response.read()

    async def _begin(self, request: Request) -> aiohttp.ClientResponse:
        return await self._answer(request, self._limits(total=None, silence=request.silence))

    def _limits(self, *, total: float | None, silence: float | None) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(
            total=total,
            connect=_TUNNEL_SECONDS if self._proxy.url else None,
            sock_connect=_CONNECT_SECONDS,
            sock_read=silence,
        )

    def _session(self) -> aiohttp.ClientSession:
        """Made late: it wants a running loop."""
        if self._closed:
            raise self._is_closed()
        if self._opened is not None:
            return self._opened
        self._opened = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=self._sockets.connecting),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_headers(self._server),
            request_class=_asking(self._check),
            trust_env=False,
        )
        # It would send a DELETE again whose connection broke: the second answer says that there is nothing to delete.
        self._opened._retry_connection = False  # noqa: SLF001 - there is no other way to say it
        return self._opened

    async def _answer(self, request: Request, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """An answer that is one; a refused identity is renewed once."""
        identity = await self._credentials.identity()
        with self._told(request):
            response = await self._send(request, identity, limits)
            if response.status == 401:  # noqa: PLR2004
                refused = await refusal(response)
                renewed = await self._credentials.identity(identity)
                if renewed == identity:
                    raise refused
                response = await self._send(request, renewed, limits)
            if response.status >= 300:  # noqa: PLR2004 - a redirect is no answer either
                raise await refusal(response)
        return response

    async def _send(
        self, request: Request, identity: Identity, limits: aiohttp.ClientTimeout
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
            ssl=self._trust.shown(identity) if self._base.scheme == "https" else True,
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
    def _told(self, request: Request) -> Iterator[None]:
        """Every failure of the wire as one of `cluster.errors`."""
        try:
            yield
        except TimeoutError as error:
            raise _late(self._server, request) from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise self._worded(error) from error
        except RuntimeError as error:
            # What aiohttp says to a reader that comes in the moment between our close and the connection's end.
            if not self._closed:
                raise
            raise self._is_closed() from error

    def _is_closed(self) -> ApiError:
        return unreachable(f"the client of {self._server.url} is closed")

    def _worded(self, error: Exception) -> ApiError:
        """What a person can act on; aiohttp's own words name classes and tuples."""
        url = self._server.url
        match error:
            case aiohttp.ClientConnectorCertificateError():
                return unreachable(f"the certificate of {url} is not to be trusted: {error.certificate_error}")
            case aiohttp.ClientHttpProxyError():
                return unreachable(f"the proxy {self._proxy} does not let us through to {url}: {error.message}")
            case aiohttp.ClientProxyConnectionError(os_error=OSError(errno=int(number))) if number > 0:
                return unreachable(f"cannot connect to the proxy {self._proxy} of {url}: {os.strerror(number)}")
            case aiohttp.ClientConnectorError(os_error=OSError(errno=int(number))) if number > 0:
                return unreachable(f"cannot connect to {url}: {os.strerror(number)}")
            case aiohttp.ClientConnectorError():
                return unreachable(f"cannot connect to {url}: {error.os_error}")
            case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError() | ConnectionError():
                return unavailable(f"{url} closed the connection before its answer was complete")
            case _:
                return unavailable(f"cannot talk to {url}: {error}")


class _Proxy:
    """Prints as its address alone: the password of a proxy is not for logs."""

    def __init__(self, url: str) -> None:
        given = URL(url) if url else None
        self.url = given.with_user(None) if given else None
        self.headers: Mapping[str, str] | None = None
        if given is not None and given.user is not None:
            password = b64encode(f"{given.user}:{given.password or ''}".encode()).decode()
            self.headers = {"Proxy-Authorization": f"Basic {password}"}

    def __str__(self) -> str:
        return str(self.url)


def _headers(server: Server) -> CIMultiDict[str]:
    return CIMultiDict(
        [
            ("Accept", "application/json"),
            ("User-Agent", server.user_agent),
            ("Accept-Encoding", "identity"),
            *server.headers,
        ]
    )


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """Leave a stream that goes on without waiting for TLS to take leave: the other end may not be listening."""
    connection = response.connection  # None when the stream has ended: then its connection is already in the pool
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def _late(server: Server, request: Request) -> Unreachable:
    return unreachable(f"{server.url} gave no answer in time: {request.method} {request.path}")


def _asking(check: Callable[[str], None]) -> type[aiohttp.ClientRequest]:
    """Requests that ask once more when they are written: connecting takes its time, in which a process may freeze."""

    class Asking(aiohttp.ClientRequest):
        async def write_bytes(
            self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
        ) -> None:
            try:
                check(self.method)
            except TarragonError as error:
                assert conn.protocol is not None  # noqa: S101 - it is, until the connection is given back
                conn.protocol.set_exception(error)  # Whoever reads the answer raises it.
                return
            await super().write_bytes(writer, conn, content_length)

    return Asking


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    """Large ones as a file, which is sent piece by piece: aiohttp warns of bytes that it would send in one step."""
    return body if body is None or len(body) <= _SENT_AT_ONCE else io.BytesIO(body)


async def lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The complete lines of a stream, however long: aiohttp's own reader fails beyond 128 kB, which a Secret reaches.

    What follows the last line end is dropped: a line that was cut off is no event.
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
