"""Records every change of the pods, while servers come and go."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tarragon.client.errors import Unavailable
from tarragon.client.http.client import HttpClient
from tarragon.client.http.transport import RestConfig as Address
from tarragon.client.port import ALL_OBJECTS
from tarragon.kube.core import PODS, Pod
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import ServerInfo, read_server

REPLICA = re.compile(r"(chief|master|ps|worker|evaluator)-(?:[a-z0-9]{4}-)?(\d+)(?:-[a-z0-9]{5})?$")
"""In the name of a pod. Before v1alpha2 there was a runtime id in it, and v1alpha1 had a tail."""


def living_server(home: Path) -> ServerInfo | None:
    server = read_server(Home(home))
    return server if server and server.is_running() else None


@asynccontextmanager
async def a_client(home: Path) -> AsyncIterator[HttpClient]:
    """Of the server that the home tells of, dead or alive. Raises OSError when it tells of none."""
    place = Home(home)
    server = read_server(place)
    if server is None:
        raise OSError(f"no server in {home}")
    address = Address(url=server.url, ca_data=place.ca.read_bytes(), token=place.read_token())
    async with HttpClient(address, random.Random(1)) as cluster:
        yield cluster


class Watcher:
    """One list, then one watch that always goes on where it was: Expired would be a loss, so it is not caught."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.pod_events: list[tuple[str, str, str]] = []
        """Type, name and uid of every event."""
        self.of: dict[str, tuple[str, str]] = {}
        """The job and the replica, as `worker-0`, of every pod that a job owns, by uid."""
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
        made = [uid for kind, _, uid in self.pod_events if kind == "ADDED" and self.replica(job, uid)]
        assert len(made) == len(set(made)), "a pod was told of twice"
        return Counter(self.replica(job, uid) for uid in made)

    def replica(self, job: str, uid: str) -> str:
        """Which of that job's replicas the pod is, as `worker-0`; an empty text for anybody else's."""
        owner, replica = self.of.get(uid, ("", ""))
        return replica if owner == job else ""

    def restarted(self, job: str) -> Mapping[str, int]:
        """How often containers were started again in their pods, by replica."""
        counts: Counter[str] = Counter()
        for uid in self.of:
            if replica := self.replica(job, uid):
                counts[replica] += self.restarts.get(uid, 0)
        return counts

    async def _run(self, version: str) -> None:
        while True:
            with suppress(Unavailable, OSError):
                async with a_client(self._home) as cluster:
                    async for event in cluster.watch(PODS, ALL_OBJECTS, version):
                        version = event.resource_version
                        if event.object is not None:
                            self._note(event.type, event.object)
            await asyncio.sleep(0.05)  # noqa: TID251 - a server that was killed tells nobody when the next one is there

    def _note(self, kind: str, pod: Pod) -> None:
        self.pod_events.append((kind, pod.metadata.name, pod.metadata.uid))
        owner, replica = pod.metadata.controller_ref, REPLICA.search(pod.metadata.name)
        if owner is not None and replica:
            self.of[pod.metadata.uid] = (owner.name, f"{replica[1]}-{replica[2]}")
        for container in pod.status.container_statuses:
            self.restarts[pod.metadata.uid] = max(self.restarts.get(pod.metadata.uid, 0), container.restart_count)
