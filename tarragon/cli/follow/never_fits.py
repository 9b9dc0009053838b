"""Notices that a job can never start on this machine, whatever ends on it."""

from __future__ import annotations

import asyncio

from tarragon.base.clock import Clock
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.progress import Progress
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.manifest.overrides import cpu_only_hint
from tarragon.scheduling.api.decision import NEVER_FITS

NEVER_FITS_AFTER = 0.8
"""Seconds for which a job must be impossible to start: a new cluster may not have registered its nodes yet."""


def never_fits_message(job: ClusterJob, progress: Progress) -> str:
    """The message for a job that can never start on this machine."""
    wait = progress.wait
    message = [f"Error: {job.name} can never start here: {wait.message if wait is not None else ''}"]
    if hint := cpu_only_hint(job.object.spec):
        message.append(f"  {hint}")
    return "\n".join(message)


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
