"""The embedded cluster of this machine as a target: started when it is needed, read from its disk when it is not."""

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
"""Seconds between two attempts, so that a cluster that dies at every start does not keep us busy."""

_CLIENT = "tarragon.client.http.client"


class Embedded:
    """The Target of a home."""

    def __init__(self, place: Home, given_namespace: str) -> None:
        self._place = place
        self._given_namespace = given_namespace

    @property
    def namespace(self) -> str:
        return self._given_namespace or "default"

    @property
    def name(self) -> str:
        return f"{LOCAL} ({self._place.folder})"

    @property
    def is_local(self) -> bool:
        return True

    @property
    def nodes(self) -> Path | None:
        return self._place.nodes

    @property
    def prompt(self) -> Prompt:
        return Prompt(here(), "default")

    @asynccontextmanager
    async def changing(self, clock: Clock) -> AsyncIterator[Http]:
        from tarragon.localcluster.daemon.daemon import ensure_running

        # A server takes a while to start; the client library takes a while to import. Both at once.
        starting = ensure_running(self._place, clock)
        server, _ = await asyncio.gather(starting, asyncio.to_thread(import_module, _CLIENT))
        async with client(self._place, server.url) as http:
            yield http

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[Looker]:
        from tarragon.localcluster.daemon.daemon import running
        from tarragon.localcluster.registry.client import OnDisk

        place = self._place
        server = await running(place)
        if server is not None:
            async with client(place, server.url) as http:
                yield http
        elif not place.store.exists():
            click.echo(f"There is no local cluster in {place.folder} yet.", err=True)
            yield Nothing()
        else:
            click.echo(f"The local cluster in {place.folder} does not run: this is what it has stored last.", err=True)
            stored = OnDisk.open(place.store)
            try:
                yield stored
            finally:
                stored.close()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Http]:
        from tarragon.localcluster.daemon.daemon import running

        server = await running(self._place)
        if server is None:
            raise TarragonError(
                f"the local cluster in {self._place.folder} does not run",
                why="nothing changes while it does not",
                remedy="`tarragon run FILE` or `tarragon up` starts it",
            )
        async with client(self._place, server.url) as http:
            yield http

    async def follow(self, follower: Follower, clock: Clock, note: Note) -> None:
        """Raises TarragonError when the cluster was ended on purpose, or does not start."""
        from tarragon.localcluster.daemon.daemon import ensure_running
        from tarragon.localcluster.home.presence import read_server

        followed: int | None = None
        while True:
            server = await ensure_running(self._place, clock)
            if followed not in {None, server.pid}:
                note(f"The local cluster had ended unexpectedly; it was started again (process {server.pid}).")
            followed = server.pid
            try:
                async with client(self._place, server.url) as http:
                    await follower.follow(http)
            except (Unavailable, Unauthorized) as error:
                if read_server(self._place) is None:
                    # Whoever is killed leaves its card behind; whoever was asked to end takes it away.
                    raise ended(follower) from error
                await clock.sleep(BREATH)
            else:
                return


def client(place: Home, url: str) -> Http:
    """Of the embedded cluster that serves at that URL."""
    from tarragon.client.http.client import Http
    from tarragon.client.http.transport import Server
    from tarragon.client.http.user_agent import user_agent

    server = Server(url=url, ca_data=place.ca.read_bytes(), token=place.read_token(), user_agent=user_agent("cli"))
    return Http(server, random.Random())


def ended(follower: Follower) -> TarragonError:
    key = follower.job.key
    return TarragonError(
        f"the local cluster was ended while {follower.job.name} was followed",
        why="somebody called `tarragon down`, or ended `tarragon up`",
        remedy=f"`tarragon up` starts it again and the job goes on; then `tarragon logs --follow {key.name}`",
    )


class Nothing:
    """What there is in a home in which no cluster has ever run."""

    async def get(self, resource: Resource[T], key: Key) -> T:
        message = f'{resource.full_name} "{key.name}" not found'
        raise NotFound({"status": "Failure", "code": 404, "reason": "NotFound", "message": message})

    async def list(self, _: Resource[T], __: Selection = EVERYTHING) -> Listing[T]:
        return Listing([], "0")
