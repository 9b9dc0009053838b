"""What the operator tells whoever asks over HTTP: is it alive, is it ready; others add routes of their own."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from tarragon.base.errors import TarragonError

PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. No host: on every interface, of IPv4 and IPv6; port 0: one that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    content_type: str = PLAIN


Routes = Mapping[str, Callable[[], Answer]]
"""By path, `/healthz`. Answers are given on the event loop: one that is stuck gives none, which says it, too."""


def verdict(faults: Sequence[str], status: int) -> Answer:
    """200 and `ok` without faults, else the status and a line for each."""
    if not faults:
        return Answer(200, b"ok\n")
    return Answer(status, "".join(f"{fault}\n" for fault in faults).encode())


@asynccontextmanager
async def serving(address: Address, routes: Routes) -> AsyncIterator[Address]:
    """Serve until the end of the block. Gives where it listens; raises TarragonError when it can't."""
    application = web.Application()
    for path, answer in routes.items():
        application.router.add_get(path, _handler(answer))
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, address.host or None, address.port)
        try:
            await site.start()
        except OSError as error:
            raise _cannot_listen(address, error) from error
        yield Address(address.host, runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _handler(answer: Callable[[], Answer]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(_: web.Request) -> web.StreamResponse:
        given = answer()
        return web.Response(status=given.status, body=given.body, headers={"Content-Type": given.content_type})

    return handle


def _cannot_listen(address: Address, error: OSError) -> TarragonError:
    why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    taken = error.errno == errno.EADDRINUSE
    remedy = "`--listen HOST:PORT` names another place, with port 0 any that is free, `--listen off` none"
    return TarragonError(
        f"cannot listen on {address}", why=f"{why}: another operator on this machine?" if taken else why, remedy=remedy
    )
