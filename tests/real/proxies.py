"""What lies between a client and its API server when things go wrong, as proxies that a test turns bad."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from tarragon.client.http.sockets import SocketRegistry
from tools.controlplane import ControlPlane

_CHUNK = 65536
_OURS = {"host", "transfer-encoding", "content-length", "connection"}
"""Headers that belong to one leg of the way."""


class Wire:
    """A TCP proxy. Those who are connected when it goes silent hear nothing more, and are not told: no FIN, no RST."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._generation = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        """How many there are now, the silent ones included."""
        return len(self._tasks)

    def go_silent(self) -> None:
        """For those who are connected now; who comes later is served."""
        self._generation += 1

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        born = self._generation
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await asyncio.gather(self._pass(reader, back, born), self._pass(there, writer, born))
        finally:
            back.transport.abort()
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, born: int) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                await self._if_alive(born)
                writer.write(data)
                await writer.drain()
        await self._if_alive(born)
        writer.transport.abort()

    async def _if_alive(self, born: int) -> None:
        """As a cable that was cut: for ever."""
        if born != self._generation:
            await asyncio.Event().wait()


@asynccontextmanager
async def wire_to(plane: ControlPlane) -> AsyncIterator[Wire]:
    """TLS goes through it unread: a kubeconfig of the server is good for it with another port (`through`)."""
    wire = Wire(URL(plane.url).port or 0)
    server = await asyncio.start_server(wire.accept, "127.0.0.1", 0)
    wire.port = server.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        server.close()
        await wire.close()


def through(wire: Wire, kubeconfig: Path) -> Path:
    """The same identity by way of the proxy."""
    config = yaml.safe_load(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{wire.port}"
    path = kubeconfig.with_name(f"wire-{wire.port}.kubeconfig")
    path.write_text(yaml.safe_dump(config))
    return path


@dataclass
class Trouble:
    """What share of the plain calls goes wrong, and how often each way of it was taken."""

    share: float = 0.0
    longest_delay: float = 1.0
    dice: random.Random = field(default_factory=lambda: random.Random(1))
    told: dict[str, int] = field(default_factory=dict)

    def next(self) -> str:
        if self.dice.random() >= self.share:
            return ""
        kind = self.dice.choice(("429", "500", "500 although done", "late", "cut"))
        self.told[kind] = self.told.get(kind, 0) + 1
        return kind


@asynccontextmanager
async def troubled(plane: ControlPlane, trouble: Trouble) -> AsyncIterator[Path]:
    """A kubeconfig for a plain HTTP server that passes everything on to the API server as its administrator."""
    trust = ssl.create_default_context(cafile=str(plane.folder / "ca.crt"))
    trust.load_cert_chain(plane.folder / "admin.crt", plane.folder / "admin.key")
    sockets = SocketRegistry()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=trust, limit=0, socket_factory=sockets.create_socket),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    ) as session:
        front = _Front(URL(plane.url), session, trouble)
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", front.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        path = plane.folder / f"troubled-{port}.kubeconfig"
        config = yaml.safe_load(plane.kubeconfig.read_text())
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{port}"}
        config["users"][0]["user"] = {}
        path.write_text(yaml.safe_dump(config))
        try:
            yield path
        finally:
            await runner.cleanup()
            await sockets.close_all()


@dataclass(frozen=True, slots=True)
class _Front:
    target: URL
    session: aiohttp.ClientSession
    trouble: Trouble

    async def handle(self, request: web.Request) -> web.StreamResponse:
        is_watch = request.query.get("watch") == "true"
        kind = "" if is_watch else self.trouble.next()
        body = await request.read()
        if kind == "429":
            return _status(429, "TooManyRequests", {"Retry-After": "1"})
        if kind == "500":
            return _status(500, "InternalError", {})
        if kind == "late":
            await asyncio.sleep(self.trouble.dice.random() * self.trouble.longest_delay)  # noqa: TID251 - a slow net
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OURS}
        url = self.target.join(request.rel_url)
        async with self.session.request(request.method, url, data=body or None, headers=headers) as answer:
            if kind == "500 although done":
                return _status(500, "InternalError", {})
            if kind == "cut":
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            passed = {name: value for name, value in answer.headers.items() if name.lower() not in _OURS}
            response = web.StreamResponse(status=answer.status, headers=passed)
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):  # either side may go when it likes
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            return response


def _status(code: int, reason: str, headers: dict[str, str]) -> web.Response:
    words = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": "test",
    }
    return web.json_response(words, status=code, headers=headers)
