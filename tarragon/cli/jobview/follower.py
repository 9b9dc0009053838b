"""Following one job on a cluster until it has ended, is suspended or is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from tarragon.base.clock import Clock
from tarragon.cli.jobview.jobs import Known, known, pods_of, sighting
from tarragon.cli.jobview.live import Live
from tarragon.cli.jobview.log_listener import Listener
from tarragon.cli.jobview.progress import ENDING, FAILED, RUNNING, STARTING, Progress, newest, read
from tarragon.client.port import Cluster
from tarragon.job.model import Replica
from tarragon.kube.core import Pod

LAST_STATES = 2.0
"""Seconds in which replicas that are being ended with their job may still show their exit codes."""
LAST_FAILURES = 1.0
"""Seconds in which replicas that still run or start may fail, too: often all of them meet the same error."""


class Follower:
    """Goes on where it was when it is given another connection: nothing is told twice. `listener` None: no logs."""

    def __init__(
        self, job: Known, clock: Clock, progressed: Callable[[Progress], None], listener: Listener | None = None
    ) -> None:
        self.job = job
        self.progress = read(sighting(job, {}))
        self.is_gone = False
        self._clock = clock
        self._progressed = progressed
        self._listener = listener
        self._pods: dict[Replica, Pod] = {}
        self._is_told = False

    @property
    def is_over(self) -> bool:
        """Nothing more will happen by itself."""
        return self.is_gone or self.progress.is_final or self.progress.state == "Suspended"

    async def follow(self, cluster: Cluster) -> None:
        """Return when it is over. Raises Unavailable or Unauthorized when the cluster is gone."""
        live = Live(cluster, self.job, self._clock)
        try:
            async with live.watching():
                await self._news(live)
                while not self.is_over:
                    await self._news(live)
                await self._end(live)
        finally:
            if self._listener is not None:
                await self._listener.stop()

    async def _news(self, live: Live) -> None:
        await live.changed()
        if self._listener is not None and self._listener.error is not None:
            raise self._listener.error
        if live.trouble is not None:
            raise live.trouble
        await self._look(live)

    async def _end(self, live: Live) -> None:
        """Replicas that end together with their job have exit codes and last words, too."""
        began = self._clock.monotonic()
        while (left := began + self._patience - self._clock.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await live.changed()
            await self._look(live)
        if self._listener is not None:
            await self._hear_out(live, self._listener)

    async def _hear_out(self, live: Live, listener: Listener) -> None:
        """A cluster that goes away meanwhile has not told everything: the next connection brings the rest."""
        hearing = asyncio.create_task(listener.last_words(live.cluster, self._pods))
        losing = asyncio.create_task(live.lost())
        try:
            await asyncio.wait((hearing, losing), return_when=asyncio.FIRST_COMPLETED)
            if hearing.done():
                hearing.result()
            elif live.trouble is not None:
                raise live.trouble
        finally:
            hearing.cancel()
            losing.cancel()
            await asyncio.gather(hearing, losing, return_exceptions=True)

    @property
    def _patience(self) -> float:
        """Seconds after the end in which the replicas' states may still change."""
        states = set() if self.is_gone else {member.state for member in self.progress.members}
        if ENDING in states:
            return LAST_STATES
        return LAST_FAILURES if states & {RUNNING, STARTING} and self.progress.state == FAILED else 0.0

    async def _look(self, live: Live) -> None:
        found = live.job
        self.is_gone = found is None
        if found is not None:
            self.job = known(self.job.framework, found)
        # The end of a job may be seen before the ends of the replicas that it rests on: two watches keep no order.
        pods = await live.pods_now() if self.job.status.phase.is_final else live.pods
        present = newest(pods_of(self.job, pods))
        self._pods |= present
        gone = frozenset(pod.metadata.uid for replica, pod in self._pods.items() if replica not in present)
        progress = read(sighting(self.job, self._pods, gone))
        if progress != self.progress or not self._is_told:
            self.progress = progress
            self._is_told = True
            self._progressed(progress)
        if self._listener is not None:
            self._listener.listen(live.cluster, present, live.wake)
