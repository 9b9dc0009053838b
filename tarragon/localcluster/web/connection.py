"""A client's connection: knows at once when the client has gone, and says everything that goes wrong as a Status."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from tarragon.cluster.errors import ApiError
from tarragon.localcluster import refusals
from tarragon.localcluster.web.answers import refusal

_log = structlog.get_logger(__name__)

_SERVER_ERROR = 500


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
    """aiohttp's, with our connections."""

    def __call__(self) -> RequestHandler:
        return Connection(self, loop=self._loop, **self._kwargs)


def _told(request: web.BaseRequest, status: int, exc: BaseException | None, message: str | None) -> ApiError:
    if isinstance(exc, RecursionError):
        return refusals.bad_request("the object provided is nested too deeply")
    if status < _SERVER_ERROR:
        return refusals.failure(status, "BadRequest", f"this is no HTTP request: {message or exc}")
    _log.error("a request failed in a way nobody foresaw", method=request.method, path=request.path, exc_info=exc)
    return refusals.internal("this is a bug in Tarragon; its log says more, please report it")
