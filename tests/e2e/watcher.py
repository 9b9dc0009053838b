"""Records every change of the pods, while servers come and go."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tarragon.cluster.errors import Unavailable
from tarragon.cluster.http import Http
from tarragon.cluster.port import EVERYTHING
from tarragon.cluster.transport import Server as Address
from tarragon.kube.core import PODS
from tarragon.localcluster.home import Home
from tarragon.localcluster.presence import Server, read_server


def living_server(home: Path) -> Server | None:
    server = read_server(Home(home))
    return server if server and server.lives() else None


@asynccontextmanager
async def a_client(home: Path) -> AsyncIterator[Http]:
    """Of the server that the home tells of, dead or alive. Raises OSError when it tells of none."""
    place = Home(home)
    server = read_server(place)
    if server is None:
        raise OSError(f"no server in {home}")
    address = Address(url=server.url, ca_data=place.ca.read_bytes(), token=place.read_token())
    async with Http(address, random.Random(1)) as cluster:
        yield cluster


class Watcher:
    """One list, then one watch that always goes on where it was: Expired would be a loss, so it is not caught."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.told: list[tuple[str, str, str]] = []
        """Type, name and uid of every event."""
        self.restarts: dict[str, int] = {}
        """Of the main container, by uid of the pod, as told last."""

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Watcher]:
        """The server must be there. What it has already counts as made now."""
        async with a_client(self._home) as cluster:
            listing = await cluster.list(PODS)
        for pod in listing.items:
            self._note("ADDED", pod)
        task = asyncio.create_task(self._run(listing.resource_version))
        try:
            yield self
        finally:
            assert not task.done(), task.result()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def added(self, job: str) -> Mapping[str, int]:
        """How often a pod was made, by replica as `worker-0`; no pod was told of twice."""
        made = [(name, uid) for kind, name, uid in self.told if kind == "ADDED" and name.startswith(f"{job}-")]
        assert len(made) == len(set(made)), "a pod was told of twice"
        return Counter(name.removeprefix(f"{job}-") for name, _ in made)

    def restarted(self, job: str) -> Mapping[str, int]:
        """How often containers were started again in their pods, by replica."""
        names = {uid: name for kind, name, uid in self.told if name.startswith(f"{job}-")}
        counts: Counter[str] = Counter()
        for uid, name in names.items():
            counts[name.removeprefix(f"{job}-")] += self.restarts.get(uid, 0)
        return counts

    async def _run(self, version: str) -> None:
        while True:
            with suppress(Unavailable, OSError):
                async with a_client(self._home) as cluster:
                    async for event in cluster.watch(PODS, EVERYTHING, version):
                        version = event.resource_version
                        if event.object is not None:
                            self._note(event.type, event.object)
            await asyncio.sleep(0.05)  # noqa: TID251 - a server that was killed tells nobody when the next one is there

    def _note(self, kind: str, pod: Any) -> None:
        self.told.append((kind, pod.metadata.name, pod.metadata.uid))
        for container in pod.status.container_statuses:
            self.restarts[pod.metadata.uid] = max(self.restarts.get(pod.metadata.uid, 0), container.restart_count)
