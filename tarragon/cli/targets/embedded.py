"""The embedded cluster of this machine as a Target. Changes start it; reads use its database if it does not run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.target import Looker, Note, Prompt
from tarragon.cli.options.settings import LOCAL
from tarragon.cli.output.invocation import here
from tarragon.client.errors import NotFound, Unauthorized, Unavailable
from tarragon.client.port import EVERYTHING, Listing, Selection
from tarragon.kube.meta import Key, Resource

if TYPE_CHECKING:
    from tarragon.cli.jobview.follower import Follower
    from tarragon.client.http.client import Http
    from tarragon.localcluster.home.home import Home

T = TypeVar("T")

BREATH = 0.2
"""Seconds between two attempts to connect, so that a cluster that crashes at every start causes no busy loop."""

_CLIENT = "tarragon.client.http.client"


class Embedded:
    """The embedded cluster of a home as a Target."""

    def __init__(self, place: Home, given_namespace: str) -> None:
        self._home = place
        self._given_namespace = given_namespace

    @property
    def namespace(self) -> str:
        return self._given_namespace or "default"

    @property
    def name(self) -> str:
        return f"{LOCAL} ({self._home.folder})"

    @property
    def is_local(self) -> bool:
        return True

    @property
    def nodes(self) -> Path | None:
        return self._home.nodes

    @property
    def prompt(self) -> Prompt:
        return Prompt(here(), "default")

    @asynccontextmanager
    async def changing(self, clock: Clock) -> AsyncIterator[Http]:
        from tarragon.localcluster.daemon.daemon import ensure_running

        # Starting the server and importing the client library both take a while: do both at once.
        starting = ensure_running(self._home, clock)
        server, _ = await asyncio.gather(starting, asyncio.to_thread(import_module, _CLIENT))
        async with client(self._home, server.url) as http:
            yield http

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[Looker]:
        from tarragon.localcluster.daemon.daemon import running
        from tarragon.localcluster.registry.client import OnDisk

        place = self._home
        server = await running(place)
        if server is not None:
            async with client(place, server.url) as http:
                yield http
        elif not place.store.exists():
            click.echo(f"No local cluster exists in {place.folder} yet.", err=True)
            yield Nothing()
        else:
            click.echo(f"The local cluster in {place.folder} is not running; showing its last stored state.", err=True)
            stored = OnDisk.open(place.store)
            try:
                yield stored
            finally:
                stored.close()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Http]:
        from tarragon.localcluster.daemon.daemon import running

        server = await running(self._home)
        if server is None:
            raise TarragonError(
                f"the local cluster in {self._home.folder} is not running",
                why="nothing changes until it is started",
                remedy="start it with `tarragon up` or `tarragon run FILE`",
            )
        async with client(self._home, server.url) as http:
            yield http

    async def follow(self, follower: Follower, clock: Clock, note: Note) -> None:
        """Follows the job and restarts a crashed cluster. Raises TarragonError if it was stopped, or does not start."""
        from tarragon.localcluster.daemon.daemon import ensure_running
        from tarragon.localcluster.home.presence import read_server

        pid: int | None = None
        while True:
            server = await ensure_running(self._home, clock)
            if pid not in {None, server.pid}:
                note(f"The local cluster ended unexpectedly and was restarted (process {server.pid}).")
            pid = server.pid
            try:
                async with client(self._home, server.url) as http:
                    await follower.follow(http)
            except (Unavailable, Unauthorized) as error:
                if read_server(self._home) is None:
                    # A server that is asked to stop removes its server file; a killed one leaves it behind.
                    raise ended(follower) from error
                await clock.sleep(BREATH)
            else:
                return


def client(place: Home, url: str) -> Http:
    """Returns a client of the embedded cluster that serves at that URL."""
    from tarragon.client.http.client import Http
    from tarragon.client.http.transport import Server
    from tarragon.client.http.user_agent import user_agent

    server = Server(url=url, ca_data=place.ca.read_bytes(), token=place.read_token(), user_agent=user_agent("cli"))
    return Http(server, random.Random())


def ended(follower: Follower) -> TarragonError:
    key = follower.job.key
    return TarragonError(
        f"the local cluster was stopped while {follower.job.name} was being followed",
        why="`tarragon down` was called, or `tarragon up` was ended",
        remedy=f"`tarragon up` starts it and continues the job; then run `tarragon logs --follow {key.name}`",
    )


class Nothing:
    """An empty cluster: the reader of a home in which no cluster has run yet."""

    async def get(self, resource: Resource[T], key: Key) -> T:
        message = f'{resource.full_name} "{key.name}" not found'
        raise NotFound({"status": "Failure", "code": 404, "reason": "NotFound", "message": message})

    async def list(self, _: Resource[T], __: Selection = EVERYTHING) -> Listing[T]:
        return Listing([], "0")
