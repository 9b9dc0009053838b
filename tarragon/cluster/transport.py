"""Requests to one API server over aiohttp: pooled, with deadlines, every failure one of `cluster.errors`."""

from __future__ import annotations

import io
import os
import ssl
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from tarragon.cluster.errors import ApiError, Unavailable, from_status, unavailable

_CONNECTIONS = 32
"""More of them cost a server more than they give a client (measured)."""

_SENT_AT_ONCE = 2**20
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 70.0
"""kube-apiserver itself gives up on a plain request after 60 s and says so: let its words come first."""

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where an API server is and how to be let in; everything as data, so that it never depends on files or variables.

    Certificates and the key are PEM. Without `ca_data` the system's authorities decide.
    """

    url: str
    ca_data: bytes = b""
    token: str = field(default="", repr=False)
    client_certificate: bytes = b""
    client_key: bytes = field(default=b"", repr=False)
    tls_server_name: str = ""
    skip_tls_verify: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call. The path is `Resource.path`; `silence`: the seconds a stream may bring nothing, None for ever."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    silence: float | None = None


class Silent(Unavailable):
    """A stream that had begun brought nothing for as long as its request allows: it may be quiet, or dead."""


class Transport:
    """Sends requests. Must be closed; then every stream that is still open ends with Unavailable."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._base = URL(server.url)
        self._tls: ssl.SSLContext | bool = _tls(server) if self._base.scheme == "https" else True
        self._calls: aiohttp.ClientSession | None = None
        self._streams: aiohttp.ClientSession | None = None
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        for session in (self._calls, self._streams):
            if session is not None:
                await session.close()

    async def call(self, request: Request) -> bytes:
        """The body of the answer."""
        if self._calls is None:
            self._calls = self._session(_CONNECTIONS)
        async with self._answer(self._calls, request, _ANSWER_SECONDS) as response:
            return await response.read()

    async def stream(self, request: Request) -> AsyncGenerator[bytes, None]:
        """The body in pieces as they come, cut anywhere. Raises Silent in the middle of it."""
        if self._streams is None:
            self._streams = self._session(0)
        async with self._answer(self._streams, request, request.silence) as response:
            try:
                async for chunk in response.content.iter_any():
                    yield chunk
            except TimeoutError as error:
                raise Silent(_late(self._server, request).status) from error
            finally:
                _hang_up(response)

    def _session(self, connections: int) -> aiohttp.ClientSession:
        if self._closed:
            raise self._is_closed()
        headers = {"Accept": "application/json", "User-Agent": "tarragon", "Accept-Encoding": "identity"}
        if self._server.token:
            headers["Authorization"] = f"Bearer {self._server.token}"
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ssl=self._tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            trust_env=False,
        )

    @asynccontextmanager
    async def _answer(
        self, session: aiohttp.ClientSession, request: Request, silence: float | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with session.request(
                request.method,
                self._base.with_path(self._base.path.rstrip("/") + request.path).with_query(request.query),
                data=_payload(request.body),
                headers={"Content-Type": request.content_type} if request.body is not None else None,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=silence),
                allow_redirects=False,
                server_hostname=self._server.tls_server_name or None,
            ) as response:
                if response.status >= 300:  # noqa: PLR2004 - a redirect is no answer either
                    raise _refusal(response, await response.read())
                yield response
        except TimeoutError as error:
            raise _late(self._server, request) from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise unavailable(self._told(error)) from error
        except RuntimeError as error:
            # What aiohttp says to a reader that comes in the moment between our close and the connection's end.
            if not self._closed:
                raise
            raise self._is_closed() from error

    def _is_closed(self) -> ApiError:
        return unavailable(f"the client of {self._server.url} is closed")

    def _told(self, error: Exception) -> str:
        """What a person can act on; aiohttp's own words name classes and tuples."""
        url = self._server.url
        match error:
            case aiohttp.ClientConnectorCertificateError():
                return f"the certificate of {url} is not to be trusted: {error.certificate_error}"
            case aiohttp.ClientConnectorError(os_error=OSError(errno=int(number))) if number > 0:
                return f"cannot connect to {url}: {os.strerror(number)}"
            case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError() | ConnectionError():
                return f"{url} closed the connection before its answer was complete"
            case _:
                return f"cannot talk to {url}: {error}"


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """Leave a stream that goes on without waiting for TLS to take leave: the other end may not be listening."""
    connection = response.connection  # None when the stream has ended: then its connection is already in the pool
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def _late(server: Server, request: Request) -> Unavailable:
    return unavailable(f"{server.url} gave no answer in time: {request.method} {request.path}")


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    """Large ones as a file, which is sent piece by piece: aiohttp warns of bytes that it would send in one step."""
    return body if body is None or len(body) <= _SENT_AT_ONCE else io.BytesIO(body)


def _refusal(response: aiohttp.ClientResponse, body: bytes) -> ApiError:
    """The error for an answer that is none: the server's own Status, or one made of what a proxy said instead."""
    code = response.status
    status = (
        _status(body)
        or {
            "kind": "Status",
            "status": "Failure",
            "code": code,
            "reason": _REASONS.get(code, "InternalError" if code >= 500 else ""),  # noqa: PLR2004
            "message": body.decode(errors="replace").strip()[:500] or f"HTTP {code} {response.reason}",
        }
    )
    status.setdefault("code", code)
    wait = response.headers.get("Retry-After", "")
    details = status.get("details") or {}
    if wait.isdigit() and "retryAfterSeconds" not in details:
        status["details"] = {**details, "retryAfterSeconds": int(wait)}
    return from_status(status)


def _status(body: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) and value.get("kind") == "Status" else None


def _tls(server: Server) -> ssl.SSLContext:
    """Made of the given data only: variables such as SSL_CERT_FILE must not decide whom an operator trusts."""
    if server.ca_data:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=server.ca_data.decode())
    else:
        context = ssl.create_default_context()
    if server.skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if server.client_certificate:
        _present(context, server.client_certificate, server.client_key)
    return context


def _present(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """OpenSSL reads its own certificate from files only: they live in a private folder, and only for this call."""
    with tempfile.TemporaryDirectory() as folder:
        pem = Path(folder, "client.pem")
        pem.touch(mode=0o600)
        pem.write_bytes(certificate + b"\n" + key)
        context.load_cert_chain(pem)


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
