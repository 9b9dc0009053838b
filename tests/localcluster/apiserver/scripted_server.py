"""A real HTTP server on a free port that answers as a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass
class Asked:
    """One request that came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Script:
    """`answer` may be changed at any time."""

    answer: Answer
    url: str = ""
    asked: list[Asked] = field(default_factory=list)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        data = b"".join([chunk async for chunk in request.content.iter_any()])
        self.asked.append(
            Asked(
                request.method,
                request.rel_url.raw_path,
                dict(request.query),
                dict(request.headers),
                msgspec.json.decode(data) if data else None,
            )
        )
        return await self.answer(request)


@asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Script]:
    script = Script(answer)
    runner = web.ServerRunner(web.Server(script.handle, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    script.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield script
    finally:
        await runner.cleanup()


def says(value: Any, code: int = 200, **headers: str) -> Answer:
    """The same JSON (or, given bytes, the same bytes) whatever is asked."""

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
        return web.Response(body=body, status=code, headers={"Content-Type": "application/json", **headers})

    return answer


async def never(_: web.BaseRequest) -> web.StreamResponse:
    """No answer."""
    answer: asyncio.Future[web.StreamResponse] = asyncio.get_running_loop().create_future()
    return await answer


def in_turn(*answers: Answer) -> Answer:
    """The first answer to the first request, and so on; the last one for all that follow."""
    waiting = list(answers)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return await (waiting.pop(0) if len(waiting) > 1 else waiting[0])(request)

    return answer


def streams(*pieces: bytes, cut: bool = False) -> Answer:
    """The pieces one by one; then the end of the stream, or of the connection."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if cut:
            assert request.transport is not None
            request.transport.close()
        return response

    return answer
