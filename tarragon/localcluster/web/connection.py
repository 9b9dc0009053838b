"""A client's connection: knows at once when the client has gone, and says everything that goes wrong as a Status."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from tarragon.cluster.errors import ApiError
from tarragon.localcluster import refusals
from tarragon.localcluster.web.answers import refusal

_log = structlog.get_logger(__name__)

_SERVER_ERROR = 500
_GOODBYE_SECONDS = 0.3
"""How long clients have, when the server ends, to take what it has said last and to say goodbye in TLS themselves."""


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connection(RequestHandler):
    """aiohttp's, whose guard around every request is the only one: nothing here catches everything again."""

    __slots__ = ("hung_up",)

    def __init__(self, manager: web.Server, *, loop: asyncio.AbstractEventLoop, **settings: Any) -> None:
        super().__init__(manager, loop=loop, **settings)
        self.hung_up: asyncio.Future[None] = loop.create_future()

    def connection_lost(self, exc: BaseException | None) -> None:
        if not self.hung_up.done():
            self.hung_up.set_result(None)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = _SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a request that broke: the client's own fault, a client that has gone, or a bug of ours."""
        if isinstance(exc, ConnectionError):
            raise exc
        error = _told(request, status, exc, message)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer had begun: breaking it off is the only way left to say that it is wrong")
        response = refusal(error)
        response.force_close()
        return response


class Server(web.Server):
    """aiohttp's, with our connections, all of which `hang_up` brings to an end."""

    def __init__(self, handler: Handler, **settings: Any) -> None:
        super().__init__(handler, **settings)
        self._lines: dict[Connection, asyncio.Transport] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._lines[cast("Connection", handler)] = transport

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._lines.pop(cast("Connection", handler), None)

    async def hang_up(self) -> None:
        """After the shutdown: cut the lines of those who have not hung up by then.

        A TLS connection is closed by both ends. asyncio waits half a minute for a client that does not do its part,
        and for ever for one of which it has stopped reading; the socket would stay open beyond the server's end.
        """
        await self._lost(_GOODBYE_SECONDS)
        for transport in list(self._lines.values()):
            transport.abort()
        await self._lost(_GOODBYE_SECONDS)

    async def _lost(self, seconds: float) -> None:
        if waiting := [line.hung_up for line in self._lines]:
            await asyncio.wait(waiting, timeout=seconds)

    def __call__(self) -> RequestHandler:
        return Connection(self, loop=self._loop, **self._kwargs)


def _told(request: web.BaseRequest, status: int, exc: BaseException | None, message: str | None) -> ApiError:
    if isinstance(exc, RecursionError):
        return refusals.too_deep()
    if status < _SERVER_ERROR:
        return refusals.failure(status, "BadRequest", f"this is no HTTP request: {message or exc}")
    _log.error("a request failed in a way nobody foresaw", method=request.method, path=request.path, exc_info=exc)
    return refusals.internal("this is a bug in Tarragon; its log says more, please report it")
