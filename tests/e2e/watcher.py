"""Records every change of the pods, and of a job's state, while servers come and go."""

from __future__ import annotations

import asyncio
import random
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

from tarragon.client.errors import ApiError, Unavailable
from tarragon.client.http.client import HttpClient
from tarragon.client.http.transport import RestConfig as Address
from tarragon.client.port import ALL_OBJECTS
from tarragon.job.phase import Phase
from tarragon.job.status import JobStatus
from tarragon.job.status_encoding import decode_status
from tarragon.kube.core import PODS, Pod
from tarragon.kube.meta import CustomObject, Resource
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import ServerInfo, read_server

REPLICA = re.compile(r"(chief|master|ps|worker|evaluator)-(?:[a-z0-9]{4}-)?(\d+)(?:-[a-z0-9]{5})?$|(launcher)$")
"""In the name of a pod. Before v1alpha2 it had a runtime id, and v1alpha1 had a tail. Launchers have no index."""
Connect = Callable[[], AbstractAsyncContextManager[HttpClient]]


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


class Follower(ABC):
    """One list, then one watch that always goes on where it was: Expired would be a loss, so it is not caught.

    But a real API server forgets its history when it is killed: there, `forgives` has ResourceExpired, after which all
    is listed again.
    """

    def __init__(self, connect: Connect, resource: Resource[Any], forgives: tuple[type[ApiError], ...] = ()) -> None:
        self._connect = connect
        self._resource = resource
        self._forgives = forgives

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Self]:
        """The server must be there. What it has already counts as made now."""
        task = asyncio.create_task(self._follow(await self._list()))
        try:
            yield self
        finally:
            assert not task.done(), task.result()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @abstractmethod
    def note(self, kind: str, found: Any) -> None:
        """An event, of any type."""

    def note_all(self, found: Sequence[Any]) -> None:
        for each in found:
            self.note("ADDED", each)

    async def _list(self) -> str:
        async with self._connect() as cluster:
            listing = await cluster.list(self._resource)
        self.note_all(listing.items)
        return listing.resource_version

    async def _follow(self, version: str) -> None:
        while True:
            with suppress(Unavailable, OSError):
                try:
                    async with self._connect() as cluster:
                        async for event in cluster.watch(self._resource, ALL_OBJECTS, version):
                            version = event.resource_version
                            if event.object is not None:
                                self.note(event.type, event.object)
                except self._forgives:
                    version = await self._list()
            await asyncio.sleep(0.05)  # noqa: TID251 - a server that was killed tells nobody when the next is there


class StateWatcher(Follower):
    """The states that a job went through."""

    def __init__(
        self, connect: Connect, kind: Resource[CustomObject], job: str, forgives: tuple[type[ApiError], ...] = ()
    ) -> None:
        super().__init__(connect, kind, forgives)
        self._job = job
        self.status = JobStatus()
        self.states: list[Phase] = []

    @property
    def has_ended(self) -> bool:
        return self.status.phase.is_final

    def note(self, kind: str, found: CustomObject) -> None:
        if found.metadata.name != self._job or kind == "DELETED":
            return
        self.status = decode_status(found.status)
        if self.states[-1:] != [self.status.phase]:
            self.states.append(self.status.phase)


class Watcher(Follower):
    """The pods that there were."""

    def __init__(self, connect: Connect, forgives: tuple[type[ApiError], ...] = ()) -> None:
        super().__init__(connect, PODS, forgives)
        self.pod_events: list[tuple[str, str, str]] = []
        """Type, name and uid of every event."""
        self.of: dict[str, tuple[str, str]] = {}
        """The job and the replica, as `worker-0`, of every pod that a job owns, by uid."""
        self.restarts: dict[str, int] = {}
        """Of the main container, by uid of the pod, as told last."""

    def added(self, job: str) -> Mapping[str, int]:
        """How often a pod was made, by replica as `worker-0`; no pod was told of twice."""
        made = [uid for kind, _, uid in self.pod_events if kind == "ADDED" and self.replica(job, uid)]
        assert len(made) == len(set(made)), "a pod was told of twice"
        return Counter(self.replica(job, uid) for uid in made)

    def there(self, job: str) -> set[str]:
        """The names of its pods that are not deleted yet."""
        return {name for uid, name in self._living().items() if self.replica(job, uid)}

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

    def _living(self) -> Mapping[str, str]:
        """The names of all pods that are not deleted yet, by uid."""
        gone = {uid for kind, _, uid in self.pod_events if kind == "DELETED"}
        return {uid: name for _, name, uid in self.pod_events if uid not in gone}

    def note_all(self, found: Sequence[Pod]) -> None:
        known, there = self._living(), {pod.metadata.uid for pod in found}
        self.pod_events += [("DELETED", name, uid) for uid, name in known.items() if uid not in there]
        for pod in found:
            self.note("MODIFIED" if pod.metadata.uid in known else "ADDED", pod)

    def note(self, kind: str, found: Pod) -> None:
        uid, owner, replica = found.metadata.uid, found.metadata.controller_ref, REPLICA.search(found.metadata.name)
        self.pod_events.append((kind, found.metadata.name, uid))
        if owner is not None and replica:
            self.of[uid] = (owner.name, f"{replica[1] or replica[3]}-{replica[2] or 0}")
        for container in found.status.container_statuses:
            self.restarts[uid] = max(self.restarts.get(uid, 0), container.restart_count)


def watcher_of(home: Path) -> Watcher:
    return Watcher(partial(a_client, home))
