"""Says that a job waits because no operator has processed it, which its status cannot say."""

from __future__ import annotations

from tarragon.base.clock import Clock
from tarragon.cli.jobview.follower import JobFollower
from tarragon.cli.jobview.rows import NOT_PROCESSED, reason
from tarragon.cli.jobview.target import ClusterTarget, Notify

UNPROCESSED_AFTER = 6.0
"""Seconds in which an operator that leads writes a job's first status.

One that must first take over from another, which died, may need its whole Lease longer: the note holds then, too.
"""


async def note_if_unprocessed(target: ClusterTarget, follower: JobFollower, clock: Clock, note: Notify) -> None:
    """Prints once, after `UNPROCESSED_AFTER`, that no operator has processed the job, and what to do about it.

    The local cluster has its own operator, which may be slow on a busy machine, but is there.
    """
    if target.is_local:
        return
    await clock.sleep(UNPROCESSED_AFTER)
    if reason(follower.job) == NOT_PROCESSED:
        program = target.command_prefix.program
        note(
            f"{follower.job.name} waits: {NOT_PROCESSED}. `{program} check --operator` looks for one; "
            "if there is none, `tarragon docs install` says how to install it"
        )
