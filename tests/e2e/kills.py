"""kill -9 of what a job runs on: its programs, their shims, the whole background cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tarragon.client.errors import NotFound, Unavailable
from tarragon.frameworks.tensorflow.crd import TFJOBS
from tarragon.job.status import JobStatus, RestartRecord
from tarragon.job.status_encoding import decode_status
from tarragon.kube.meta import CustomObject, Key, Resource
from tarragon.localcluster.home.lock import process_start
from tarragon.localcluster.kubelet.shim.shim_client import ShimState, state_of
from tests.e2e.user import PATIENCE
from tests.e2e.watcher import Watcher, a_client, living_server


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A job of that name in the cluster of that home, and who has watched its pods from the first."""

    home: Path
    job: str
    watcher: Watcher
    kind: Resource[CustomObject] = TFJOBS

    def running(self) -> Mapping[str, ShimState]:
        """The containers that run now, by replica as `worker-0`."""
        found: dict[str, ShimState] = {}
        for path in self.home.glob("node/*/pods/*/runs/tensorflow/*/state.json"):
            replica = self.watcher.replica(self.job, path.parents[3].name)
            state = state_of(path.parent)
            if replica and state and state.main and process_start(state.main.pid) and not state.has_ended:
                found[replica] = state
        return found

    def kill_program(self, replica: str) -> None:
        state = self.running().get(replica)
        if state and state.main:
            kill(state.main.pid)

    def kill_shim(self, replica: str) -> None:
        state = self.running().get(replica)
        if state and state.shim:
            kill(state.shim.pid)

    def kill_cluster(self) -> None:
        """API server, operator and kubelet at once: they are one process."""
        if server := living_server(self.home):
            kill(server.pid)

    async def status(self) -> JobStatus:
        """Raises Unavailable while no server runs."""
        async with a_client(self.home) as cluster:
            job = await cluster.get(self.kind, Key("default", self.job))
            return decode_status(job.status)

    async def answers(self) -> bool:
        with suppress(NotFound, Unavailable, OSError):  # it comes, it comes again
            await self.status()
            return living_server(self.home) is not None
        return False

    def balanced(self, status: JobStatus) -> Mapping[str, RestartRecord]:
        """Nothing lost, nothing doubled: every pod that was ever made, and every restart in one, is in the status."""
        said = {str(replica): record for replica, record in status.restarts.items()}
        made, restarted = self.watcher.added(self.job), self.watcher.restarted(self.job)
        for replica in made:
            record = said.setdefault(replica, RestartRecord())
            assert made[replica] == 1 + record.pod_restarts, (replica, record, self.watcher.pod_events)
            assert restarted[replica] == record.container_restarts, (replica, record, self.watcher.pod_events)
        assert said.keys() == made.keys()
        return said


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def until(probe: Callable[[], Awaitable[bool] | bool], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while True:
        answer = probe()
        if answer if isinstance(answer, bool) else await answer:
            return
        assert time.monotonic() < deadline, f"has not come true within {seconds} s"
        await pause(0.05)


async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)  # noqa: TID251 - other processes tell nobody here; and a kill is to come at any moment
