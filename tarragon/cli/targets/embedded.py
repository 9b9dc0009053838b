"""The embedded cluster of this machine as a Target. Changes start it; reads use its database if it does not run."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.target import ClusterReader, CommandPrefix, Notify, is_offline_reader
from tarragon.cli.options.notes import print_note, print_warning
from tarragon.cli.options.settings import LOCAL
from tarragon.cli.output.invocation import current_invocation
from tarragon.client.errors import ApiError, NotFound, Unauthorized, Unavailable
from tarragon.client.port import ALL_OBJECTS, ObjectList, Selector
from tarragon.kube.meta import Key, Resource

if TYPE_CHECKING:
    from tarragon.cli.jobview.follower import JobFollower
    from tarragon.client.http.blocking_reader import BlockingReader
    from tarragon.client.http.client import HttpClient
    from tarragon.localcluster.home.home import Home
    from tarragon.localcluster.home.lock import ServerInfo

T = TypeVar("T")

RECONNECT_PAUSE = 0.2
"""Seconds between two attempts to connect, so that a cluster that crashes at every start causes no busy loop."""

_CLIENT = "tarragon.client.http.client"


class EmbeddedTarget:
    """The embedded cluster of a home as a Target."""

    def __init__(self, place: Home, given_namespace: str, deadline: float = math.inf) -> None:
        """Reading does not wait beyond `deadline` (monotonic); as it holds up the event loop, nothing else ends it."""
        self._home = place
        self._given_namespace = given_namespace
        self._deadline = deadline

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
    def nodes_folder(self) -> Path | None:
        return self._home.nodes

    @property
    def command_prefix(self) -> CommandPrefix:
        return CommandPrefix(current_invocation(), "default")

    @asynccontextmanager
    async def writing(self, clock: Clock) -> AsyncIterator[HttpClient]:
        from tarragon.cli.targets.extras import LOCAL, require_extra
        from tarragon.localcluster.daemon.background import ensure_running

        require_extra(LOCAL, "the local cluster")
        # Starting the server and importing the client library both take a while: do both at once.
        starting = ensure_running(self._home, clock)
        server, _ = await asyncio.gather(starting, asyncio.to_thread(import_module, _CLIENT))
        async with embedded_client(self._home, server.url) as http:
            yield http

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[ClusterReader]:
        async with self.selecting() as reader:
            if is_offline_reader(reader):
                print_note(f"The local cluster in {self._home.folder} is not running; showing its last stored state.")
            yield reader

    @asynccontextmanager
    async def selecting(self) -> AsyncIterator[ClusterReader]:
        place = self._home
        reader = _running_reader(place, self._deadline)
        if reader is not None:
            with reader:
                yield reader
        elif not place.store_path.exists():
            print_note(f"No local cluster exists in {place.folder} yet.")
            yield EmptyReader()
        else:
            from tarragon.localcluster.registry.offline import OfflineCluster

            stored = OfflineCluster.open(place.store_path)
            try:
                yield stored
            finally:
                stored.close()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[HttpClient]:
        from tarragon.localcluster.daemon.background import find_server

        server = await find_server(self._home)
        if server is None:
            raise TarragonError(
                f"the local cluster in {self._home.folder} is not running",
                why="nothing changes until it is started",
                remedy="start it with `tarragon up` or `tarragon run FILE`",
            )
        async with embedded_client(self._home, server.url) as http:
            yield http

    async def follow(self, follower: JobFollower, clock: Clock, note: Notify) -> None:
        """Follows the job and restarts a crashed cluster. Raises TarragonError if it was stopped, or does not start."""
        from tarragon.localcluster.daemon.background import ensure_running
        from tarragon.localcluster.home.lock import read_server

        pid: int | None = None
        while True:
            server = await ensure_running(self._home, clock)
            if pid not in {None, server.pid}:
                note(f"The local cluster ended unexpectedly and was restarted (process {server.pid}).")
            pid = server.pid
            try:
                async with embedded_client(self._home, server.url) as http:
                    await follower.follow(http)
            except (Unavailable, Unauthorized) as error:
                if read_server(self._home) is None:
                    # A server that is asked to stop removes its server file; a killed one leaves it behind.
                    raise cluster_stopped_error(follower) from error
                await clock.sleep(RECONNECT_PAUSE)
            else:
                return


def _running_reader(place: Home, deadline: float) -> BlockingReader | None:
    """Returns a reader of the cluster if it runs. Its first request restarts the cluster's idle timeout.

    Raises TarragonError if the cluster runs and does not answer: its database is in use then.
    """
    from tarragon.localcluster.home.lock import read_server

    server = read_server(place)
    if server is None or not server.is_running():
        return None
    from tarragon.client.http.blocking_reader import BlockingReader
    from tarragon.client.http.user_agent import user_agent

    try:
        reader = BlockingReader(server.url, place.ca.read_bytes(), place.read_token(), user_agent("cli"), deadline)
    except (OSError, ValueError):  # its files are being replaced
        return None
    try:
        reader.read("/version", {})
    except ApiError as error:
        reader.close()
        if read_server(place) != server or not server.is_running():  # it has just ended
            return None
        raise _no_answer_error(place, server, error) from error
    reader.on_warning(print_warning)
    return reader


def _no_answer_error(place: Home, server: ServerInfo, error: ApiError) -> TarragonError:
    if not isinstance(error, Unavailable):
        return error
    return TarragonError(
        f"the local cluster in {place.folder} does not answer",
        why=f"its process {server.pid} runs, but {error.summary}",
        remedy="try again, as this machine may be busy; `tarragon down` stops it, also when it hangs",
    )


def embedded_client(place: Home, url: str) -> HttpClient:
    """Returns a client of the embedded cluster that serves at that URL."""
    from tarragon.client.http.client import HttpClient
    from tarragon.client.http.transport import RestConfig
    from tarragon.client.http.user_agent import user_agent

    server = RestConfig(url=url, ca_data=place.ca.read_bytes(), token=place.read_token(), user_agent=user_agent("cli"))
    http = HttpClient(server, random.Random())
    http.on_warning(print_warning)
    return http


def cluster_stopped_error(follower: JobFollower) -> TarragonError:
    key = follower.job.key
    return TarragonError(
        f"the local cluster was stopped while {follower.job.name} was being followed",
        why="`tarragon down` was called, or `tarragon up` was ended",
        remedy=f"`tarragon up` starts it and continues the job; then run `tarragon logs --follow {key.name}`",
    )


class EmptyReader:
    """An empty cluster: the reader of a home in which no cluster has run yet."""

    async def get(self, resource: Resource[T], key: Key) -> T:
        message = f'{resource.full_name} "{key.name}" not found'
        raise NotFound({"status": "Failure", "code": 404, "reason": "NotFound", "message": message})

    async def list(self, _: Resource[T], __: Selector = ALL_OBJECTS) -> ObjectList[T]:
        return ObjectList([], "0")
