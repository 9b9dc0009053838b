"""The operator's HTTP server: serves liveness, readiness and any other routes."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from tarragon.base.errors import TarragonError

TEXT_PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen. An empty host means every IPv4 and IPv6 interface; port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP response."""

    status: int
    body: bytes
    content_type: str = TEXT_PLAIN


Routes = Mapping[str, Callable[[], HttpResponse]]
"""Handlers by path (`/healthz`). They run on the event loop, so a stuck loop fails the probe by not answering."""


def probe_response(faults: Sequence[str], status: int) -> HttpResponse:
    """200 and `ok` if there are no faults, else `status` and one line per fault."""
    if not faults:
        return HttpResponse(200, b"ok\n")
    return HttpResponse(status, "".join(f"{fault}\n" for fault in faults).encode())


@asynccontextmanager
async def serving(address: ListenAddress, routes: Routes) -> AsyncIterator[ListenAddress]:
    """Serve until the end of the block. Yields the actual address; raises TarragonError if it cannot listen."""
    application = web.Application()
    for path, handler in routes.items():
        application.router.add_get(path, _handler(handler))
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, address.host or None, address.port)
        try:
            await site.start()
        except OSError as error:
            raise _cannot_listen(address, error) from error
        yield ListenAddress(address.host, runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _handler(handler: Callable[[], HttpResponse]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(_: web.Request) -> web.StreamResponse:
        response = handler()
        return web.Response(status=response.status, body=response.body, headers={"Content-Type": response.content_type})

    return handle


def _cannot_listen(address: ListenAddress, error: OSError) -> TarragonError:
    why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    is_in_use = error.errno == errno.EADDRINUSE
    remedy = "`--listen HOST:PORT` chooses another address (port 0: any free port), `--listen off` none"
    return TarragonError(
        f"cannot listen on {address}",
        why=f"{why}: is another operator running on this machine?" if is_in_use else why,
        remedy=remedy,
    )
