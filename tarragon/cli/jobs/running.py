"""Submits one job, and follows it to its end: the work of `tarragon run` and `tarragon submit`."""

from __future__ import annotations

from dataclasses import dataclass

from tarragon.base.clock import Clock, SystemClock
from tarragon.cli.jobs.node_notes import configured_nodes, node_notes
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.target import ClusterTarget, Notify
from tarragon.cli.manifest.loading import LoadedJob
from tarragon.cli.manifest.submission import BeforeReplacing, ImpossibleJob, Submitter, allow_replacing
from tarragon.cli.options.notes import print_note, print_notes
from tarragon.cli.output.style import painter
from tarragon.cli.output.terminal import Terminal
from tarragon.cli.targets.ending import delete_job


async def submit_job(
    target: ClusterTarget,
    loaded: LoadedJob,
    clock: Clock,
    note: Notify = print_note,
    *,
    is_once: bool = False,
    before_replacing: BeforeReplacing = allow_replacing,
) -> ClusterJob:
    """Submit the job and the objects it needs, report notes, and return the job as stored."""
    for text in loaded.notes:
        note(text)
    wanted_nodes = configured_nodes() if target.is_local else ""
    async with target.writing(clock) as cluster:
        submission = Submitter(cluster, target, clock, note, before_replacing)
        job = await (submission.submit_unless_unchanged(loaded) if is_once else submission.submit(loaded))
        if target.is_local:
            for text in await node_notes(cluster, loaded, wanted_nodes):
                note(text)
        return job


async def submit_detached(
    target: ClusterTarget, loaded: LoadedJob, clock: Clock, before_replacing: BeforeReplacing = allow_replacing
) -> ClusterJob:
    """Submit a job that nobody follows, and warn on stderr if this machine can never start it."""
    job = await submit_job(target, loaded, clock, is_once=True, before_replacing=before_replacing)
    if not target.is_local:
        return job  # a cluster may get more nodes
    if _may_lack_nodes(loaded):
        from tarragon.cli.follow.never_fits import never_fits_warning

        print_note(await never_fits_warning(target, job, clock))
    return job


def _may_lack_nodes(loaded: LoadedJob) -> bool:
    from tarragon.cli.manifest.quick_feasibility import may_lack_nodes
    from tarragon.cli.manifest.sizing import training_jobs

    return may_lack_nodes(training_jobs([loaded]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a job is followed: for at most `limit` seconds, None for no limit; with `is_once` also one that exists.

    `ends_pods`: the replicas that still run after the job's end are ended. `deletes_unplaceable`: so is a job that this
    machine can never run.
    """

    limit: float | None
    is_once: bool = False
    ends_pods: bool = False
    deletes_unplaceable: bool = False
    before_replacing: BeforeReplacing = allow_replacing


async def run_attached(target: ClusterTarget, terminal: Terminal, loaded: LoadedJob, wanted: RunOptions) -> int:
    """Submit and follow the job, and return the exit code."""
    clock = SystemClock()
    held: list[str] = []
    # Of a job that can never start, and is deleted at once, only the error is of use.
    note = held.append if wanted.deletes_unplaceable and _may_lack_nodes(loaded) else print_note
    job = None
    try:
        job = await submit_job(
            target, loaded, clock, note, is_once=wanted.is_once, before_replacing=wanted.before_replacing
        )
    except ImpossibleJob:
        held.clear()
        raise
    finally:
        if job is None:
            print_notes(held)
    submitted = clock.monotonic()
    # Imported while the cluster starts the job.
    from tarragon.cli.follow.attending import FollowEnd, FollowSession
    from tarragon.cli.follow.verdict import report_outcome

    attendance = FollowSession(job, target, terminal, clock, submitted)
    attendance.hold_back(held)
    if wanted.ends_pods:
        attendance.end_remaining_pods()
    how = await attendance.run(wanted.limit)
    if how is FollowEnd.NEVER_FITS and wanted.deletes_unplaceable:
        async with target.writing(clock) as cluster:
            await delete_job(cluster, job, clock)
        how = FollowEnd.NEVER_FITS_AND_DELETED
    return report_outcome(attendance, how, wanted.limit, painter(colors=terminal.colors_out))
