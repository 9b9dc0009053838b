"""Doors to the cluster: one for those who change something, which starts it, and one for those who only look."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, TypeVar

import click

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.cli.settings import LOCAL, Settings, home
from tarragon.cluster.errors import NotFound
from tarragon.cluster.port import EVERYTHING, Listing, Selection
from tarragon.kube.meta import Key, Resource

if TYPE_CHECKING:
    from tarragon.cluster.http import Http
    from tarragon.localcluster.home import Home

T = TypeVar("T")

_CLIENT = "tarragon.cluster.http"


class Looker(Protocol):
    """The reading half of a Cluster: it is there when no server runs, too."""

    async def get(self, resource: Resource[T], key: Key) -> T: ...

    async def list(self, resource: Resource[T], selection: Selection = EVERYTHING, /) -> Listing[T]: ...


@asynccontextmanager
async def cluster(settings: Settings, clock: Clock) -> AsyncIterator[Http]:
    """The cluster of the settings; the embedded one is started if it does not run."""
    from tarragon.localcluster.daemon import ensure_running

    require_local(settings)
    place = home()
    # A server takes a while to start; the client library takes a while to import. Both at once.
    server, _ = await asyncio.gather(ensure_running(place, clock), asyncio.to_thread(import_module, _CLIENT))
    async with client(place, server.url) as http:
        yield http


@asynccontextmanager
async def looking(settings: Settings) -> AsyncIterator[Looker]:
    """The cluster if it runs, else what it has stored last."""
    from tarragon.localcluster.client import OnDisk
    from tarragon.localcluster.daemon import running

    require_local(settings)
    place = home()
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


def is_store(looker: object) -> bool:
    """Whether it tells what was stored last, by a cluster that does not run."""
    from tarragon.localcluster.client import OnDisk

    return isinstance(looker, OnDisk)


@asynccontextmanager
async def watching(settings: Settings) -> AsyncIterator[Http]:
    """The cluster, which must be running: where nothing runs there is nothing to wait for."""
    from tarragon.localcluster.daemon import running

    require_local(settings)
    place = home()
    server = await running(place)
    if server is None:
        raise TarragonError(
            f"the local cluster in {place.folder} does not run",
            why="nothing changes while it does not",
            remedy="`tarragon run FILE` or `tarragon up` starts it",
        )
    async with client(place, server.url) as http:
        yield http


def client(place: Home, url: str) -> Http:
    """Of the embedded cluster that serves at that URL."""
    from tarragon.cluster.http import Http
    from tarragon.cluster.transport import Server

    return Http(Server(url=url, ca_data=place.ca.read_bytes(), token=place.read_token()), random.Random())


def require_local(settings: Settings) -> None:
    """Raises TarragonError for any other cluster."""
    if settings.context not in {"", LOCAL}:
        raise TarragonError(
            f"there is no context {settings.context} for this version of tarragon",
            why="it knows one cluster, `local`, the embedded one of this machine; others come in a later version",
            remedy="leave out --context and TARRAGON_CONTEXT; for another cluster, kubectl takes the same FILE",
        )


class Nothing:
    """What there is in a home in which no cluster has ever run."""

    async def get(self, resource: Resource[T], key: Key) -> T:
        message = f'{resource.full_name} "{key.name}" not found'
        raise NotFound({"status": "Failure", "code": 404, "reason": "NotFound", "message": message})

    async def list(self, _: Resource[T], __: Selection = EVERYTHING) -> Listing[T]:
        return Listing([], "0")
