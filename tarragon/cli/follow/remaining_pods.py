"""Ends the replicas that still run once their job has its result, as `run` does on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from types import MappingProxyType

from tarragon.base.clock import Clock
from tarragon.cli.jobview.follower import JobFollower
from tarragon.cli.jobview.jobs import ClusterJob, pods_of
from tarragon.cli.jobview.live import JobWatch
from tarragon.cli.jobview.target import Notify
from tarragon.cli.output.words import joined
from tarragon.cli.targets.ending import KILL_GRACE
from tarragon.client.errors import NotFound
from tarragon.client.port import DeleteOptions
from tarragon.job.model import EndsAfterJob, Replica
from tarragon.job.phase import Phase
from tarragon.kube.core import PODS, Pod

GRACE: Mapping[EndsAfterJob, float] = MappingProxyType(
    {EndsAfterJob.SOON: 5.0, EndsAfterJob.AFTER_LAST_CHECKPOINT: 30.0, EndsAfterJob.NEVER: 0.0}
)
"""Seconds after a job's success for which a replica may go on: enough for the last step of a worker, and for most
evaluations of a last checkpoint."""
SILENT_SECONDS = 1.0
"""Seconds of waiting before the user is told: most replicas end together with their job."""


def grace(job: ClusterJob, replica: Replica) -> float:
    """Seconds after the job's end before the replica is terminated; none after a failure: replicas may be stuck."""
    spec = job.job.replica_spec(replica.type) if job.job is not None else None
    if spec is None or job.status.phase is not Phase.SUCCEEDED:
        return 0.0
    return GRACE[spec.role.ends_after_job]


class RemainingPods:
    """The pods of one job that still run after its end. `ended` has the replicas that did not end by themselves.

    The job's TensorBoard is not a replica, and stays as its annotations say.
    """

    def __init__(self, clock: Clock, note: Notify) -> None:
        self.ended: list[Replica] = []
        self._clock = clock
        self._note = note
        self._job_ended: float | None = None
        self._interrupt = asyncio.Event()

    def interrupt(self) -> None:
        """Cuts the present wait short: that for replicas to end by themselves, then that for their termination."""
        self._interrupt.set()

    async def end(self, follower: JobFollower, live: JobWatch) -> None:
        """Returns when no pod of the job runs. May be called again with another connection, after one was lost."""
        if self._job_ended is None:
            self._job_ended = self._clock.monotonic()
        await self._let_end(follower, live, self._job_ended)
        remaining = await _unfinished(follower, live)
        self.ended += [replica for replica in remaining if replica not in self.ended]
        await _delete(live, remaining, grace_seconds=None)
        await self._let_terminate(follower, live)
        await follower.refresh(live)  # the last of them may be gone before its watch says so

    async def _let_end(self, follower: JobFollower, live: JobWatch, since: float) -> None:
        """Returns when the replicas have ended, their grace is over, or the user interrupts."""
        is_told = False
        while not self._is_interrupted():
            waited = self._clock.monotonic() - since
            remaining = await _unfinished(follower, live)
            left = {each: seconds for each in remaining if (seconds := grace(follower.job, each) - waited) > 0}
            if not left:
                return
            longest = max(left.values())
            if waited >= SILENT_SECONDS and not is_told:
                is_told = True
                names, them = _names(left), _pronoun(left)
                self._note(f"Waiting up to {longest:.0f} s for {names} to end; Ctrl-C ends {them} now.")
            await self._change(follower, live, longest if is_told else SILENT_SECONDS)

    async def _let_terminate(self, follower: JobFollower, live: JobWatch) -> None:
        """Returns when no pod runs. Pods whose programs ignore SIGTERM are killed after their grace period."""
        since, is_told = self._clock.monotonic(), False
        while remaining := await _unfinished(follower, live):
            if self._is_interrupted():
                await _delete(live, remaining, grace_seconds=KILL_GRACE)
            elif self._clock.monotonic() - since >= SILENT_SECONDS and not is_told:
                is_told = True
                self._note(f"Waiting for {_names(remaining)} to end after SIGTERM; Ctrl-C kills {_pronoun(remaining)}.")
            await self._change(follower, live, SILENT_SECONDS)

    def _is_interrupted(self) -> bool:
        """Whether the user interrupted since the last call."""
        was_set = self._interrupt.is_set()
        self._interrupt.clear()
        return was_set

    async def _change(self, follower: JobFollower, live: JobWatch, seconds: float) -> None:
        """Returns after a change of the job or its pods, an interrupt, or so many seconds."""
        waits = (live.wait_for_change(), self._interrupt.wait(), self._clock.sleep(seconds))
        tasks = [asyncio.ensure_future(each) for each in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if live.error is not None:
            raise live.error
        await follower.refresh(live)


async def _unfinished(follower: JobFollower, live: JobWatch) -> Mapping[Replica, Pod]:
    """The pods of the job that have not ended: read again, as a watch may be behind."""
    found = sorted(pods_of(follower.job, await live.list_pods()), key=lambda each: each[0])
    return {replica: pod for replica, pod in found if not pod.is_finished}


async def _delete(live: JobWatch, pods: Mapping[Replica, Pod], *, grace_seconds: int | None) -> None:
    for pod in pods.values():
        options = DeleteOptions(uid=pod.metadata.uid, grace_period_seconds=grace_seconds)
        with suppress(NotFound):
            await live.cluster.delete(PODS, pod.metadata.key, options)


def _names(replicas: Collection[Replica]) -> str:
    return joined([str(replica) for replica in replicas])


def _pronoun(replicas: Collection[Replica]) -> str:
    return "it" if len(replicas) == 1 else "them"
