"""A real HTTP proxy in front of an API server, which lets the watches that are open go deaf."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from yarl import URL

from tarragon.client.http.sockets import SocketRegistry
from tarragon.client.http.transport import RestConfig

_OF_THE_CONNECTION = {"host", "transfer-encoding", "content-length", "connection"}


@dataclass
class DeafProxy:
    """`watched` are the versions from which watches began."""

    target: URL
    session: aiohttp.ClientSession
    url: str = ""
    watched: list[str] = field(default_factory=list)
    _deaf: int = 0
    """The watches up to this one are deaf."""

    def deafen(self) -> None:
        """The watches that are open now stay open and bring nothing more; lists, writes and new watches pass."""
        self._deaf = len(self.watched)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        number = 0
        if request.query.get("watch") == "true":
            self.watched.append(request.query["resourceVersion"])
            number = len(self.watched)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_THE_CONNECTION}
        url, body = self.target.join(request.rel_url), await request.read()
        async with self.session.request(request.method, url, data=body or None, headers=headers) as answer:
            passed = {n: value for n, value in answer.headers.items() if n.lower() not in _OF_THE_CONNECTION}
            response = web.StreamResponse(status=answer.status, headers=passed)
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):  # either side may go when it likes
                async for chunk in answer.content.iter_any():
                    if not 0 < number <= self._deaf:
                        await response.write(chunk)
            return response


@asynccontextmanager
async def deaf_proxy(server: RestConfig) -> AsyncIterator[DeafProxy]:
    """A proxy of that server without TLS; tokens pass it."""
    trust = ssl.create_default_context(cadata=(server.ca_data or b"").decode())
    sockets = SocketRegistry()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=trust, limit=0, socket_factory=sockets.create_socket),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    ) as session:
        proxy = DeafProxy(URL(server.url), session)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", proxy.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield proxy
        finally:
            await runner.cleanup()
            await sockets.close_all()
