"""Notices that a job can never start on this machine, whatever ends on it."""

from __future__ import annotations

import asyncio

from tarragon.base.clock import Clock
from tarragon.cli.jobview.follower import JobFollower
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.progress import Progress
from tarragon.cli.jobview.queueing import never_fits
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.manifest.overrides import cpu_only_hint
from tarragon.cli.options.notes import print_note
from tarragon.cli.targets.next_commands import command_line
from tarragon.scheduling.api.decision import NEVER_FITS

NEVER_FITS_AFTER = 0.8
"""Seconds for which a job must be impossible to start: a new cluster may not have registered its nodes yet."""


DECISION_SECONDS = 2.0
"""Seconds in which the scheduler has to decide about a job whose user does not want to wait for it."""


def never_fits_message(job: ClusterJob, progress: Progress) -> str:
    """The message for a job that can never start on this machine."""
    return f"Error: {_never_fits_text(job, progress)}"


def _never_fits_text(job: ClusterJob, progress: Progress) -> str:
    wait = progress.wait
    message = [f"{job.name} can never start here: {wait.message if wait is not None else ''}"]
    if hint := cpu_only_hint(job.object.spec):
        message.append(f"  {hint}")
    return "\n".join(message)


async def never_fits_warning(target: ClusterTarget, job: ClusterJob, clock: Clock) -> str:
    """Waits for the scheduler's decision, and returns the warning for a job that can never start on this machine.

    Empty for any other job, and if there is no decision in DECISION_SECONDS.
    """
    decision = asyncio.Event()
    watch = NeverFitsWatch(target, clock)

    def progressed(progress: Progress) -> None:
        watch.progressed(progress)
        admission = follower.job.status.admission
        if admission is not None and not never_fits(follower.job) and (admission.admitted_at or admission.wait):
            decision.set()

    follower = JobFollower(job, clock, progressed)
    tasks: list[asyncio.Task[None] | asyncio.Task[bool]] = [
        asyncio.create_task(target.follow(follower, clock, print_note)),
        asyncio.create_task(decision.wait()),
        asyncio.create_task(clock.sleep(DECISION_SECONDS + NEVER_FITS_AFTER)),
    ]
    try:
        await asyncio.wait((*tasks, watch.noticed), return_when=asyncio.FIRST_COMPLETED)
        if not watch.noticed.done():
            return ""
        delete = command_line(target.command_prefix, job.command_key, "delete")
        text = _never_fits_text(follower.job, follower.progress)
        return f"warning: {text}\n  It waits until you delete it: {delete}"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await watch.close()


class NeverFitsWatch:
    """`noticed` is done once the job has been impossible to start for long enough.

    Only this machine is judged: a cluster may get more nodes.
    """

    def __init__(self, target: ClusterTarget, clock: Clock) -> None:
        self.noticed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._target = target
        self._clock = clock
        self._waiting: asyncio.Task[None] | None = None

    def progressed(self, progress: Progress) -> None:
        never_fits = self._target.is_local and progress.wait is not None and progress.wait.code == NEVER_FITS
        if never_fits and self._waiting is None:
            self._waiting = asyncio.create_task(self._wait())
        elif not never_fits and self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    async def close(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.gather(self._waiting, return_exceptions=True)

    async def _wait(self) -> None:
        await self._clock.sleep(NEVER_FITS_AFTER)
        if not self.noticed.done():
            self.noticed.set_result(None)
