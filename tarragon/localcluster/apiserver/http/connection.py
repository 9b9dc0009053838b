"""A client's connection: closed when no request arrives in time, notified when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from tarragon.client.errors import ApiError
from tarragon.localcluster.api import errors
from tarragon.localcluster.apiserver.http.responses import error_response

_log = structlog.get_logger(__name__)

_SERVER_ERROR = 500
_CLOSING_SECONDS = 0.3
"""How long clients have, when the server stops, to read its last output and to close their side of TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Time limits of a request, and the maximum number of connections.

    `header_seconds` is kube-apiserver's ReadHeaderTimeout. It bounds the TLS handshake, then the time until the first
    request's header is complete; on a reused connection it starts with the first byte of the header.
    `body_seconds` starts with the complete header. Responses have no limit: watches, logs and exec may go on.
    """

    header_seconds: float = 32.0
    body_seconds: float = 60.0
    connections: int = 4096


DEFAULT_LIMITS = Limits()

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connection(RequestHandler):
    """aiohttp's request handler with a deadline for headers. It turns exceptions of a request into a Status."""

    __slots__ = ("_header_deadline", "disconnected", "limits")

    def __init__(self, manager: Server, *, loop: asyncio.AbstractEventLoop, **settings: Any) -> None:
        super().__init__(manager, loop=loop, **settings)
        self.limits = manager.limits
        self.disconnected: asyncio.Future[None] = loop.create_future()
        self._header_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._await_header()
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_waiting()
        if not self.disconnected.done():
            self.disconnected.set_result(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        received = self._request_count
        super().data_received(data)
        if self._request_count > received:
            self._stop_waiting()
        elif self._header_deadline is None and self._waiter is not None and not self._waiter.done():
            # No request is being answered, so these bytes begin the header of the next one.
            self._await_header()

    def _await_header(self) -> None:
        self._header_deadline = self._loop.call_later(self.limits.header_seconds, self._cut)

    def _stop_waiting(self) -> None:
        if self._header_deadline is not None:
            self._header_deadline.cancel()
            self._header_deadline = None

    def _cut(self) -> None:
        """Abort the connection: an orderly end of TLS needs the client, for which asyncio waits half a minute."""
        self._header_deadline = None
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = _SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that failed: a malformed request, a client that has left, or a bug of ours."""
        if isinstance(exc, ConnectionError):
            raise exc
        error = _error_of(request, status, exc, message)
        if request.writer.output_size > 0:
            raise ConnectionError("the response had begun; closing the connection is the only way to report the error")
        response = error_response(error)
        response.force_close()
        return response


class Server(web.Server):
    """aiohttp's server with our connections, all of which `close_connections` closes."""

    def __init__(self, handler: Handler, limits: Limits = DEFAULT_LIMITS, **settings: Any) -> None:
        super().__init__(handler, **settings)
        self.limits = limits
        self._transports: dict[Connection, asyncio.Transport] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._transports[cast("Connection", handler)] = transport

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._transports.pop(cast("Connection", handler), None)

    async def close_connections(self) -> None:
        """Close the connections that are still open after the shutdown.

        A TLS connection is closed by both ends. asyncio waits half a minute for a client that does not close its end,
        and forever for one from which it has stopped reading; the socket would outlive the server.
        """
        await self._wait_closed(_CLOSING_SECONDS)
        for transport in list(self._transports.values()):
            transport.abort()
        await self._wait_closed(_CLOSING_SECONDS)

    async def _wait_closed(self, seconds: float) -> None:
        if waiting := [connection.disconnected for connection in self._transports]:
            await asyncio.wait(waiting, timeout=seconds)

    def __call__(self) -> Connection:
        return Connection(self, loop=self._loop, **self._kwargs)


def _error_of(request: web.BaseRequest, status: int, exc: BaseException | None, message: str | None) -> ApiError:
    if isinstance(exc, RecursionError):
        return errors.nested_too_deeply()
    if status < _SERVER_ERROR:
        return errors.failure(status, "BadRequest", f"malformed HTTP request: {message or exc}")
    _log.error("a request failed with an unexpected error", method=request.method, path=request.path, exc_info=exc)
    return errors.internal("this is a bug in Tarragon: please report it with the error in its log")
