"""Which replicas of a running job print nothing, and how to see where one stands: what `tarragon why` says of hangs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.progress import RUNNING
from tarragon.cli.jobview.quiet_replicas import (
    DOCS,
    ReplicaOutput,
    longest_pause,
    prints_while_training,
    quiet_replicas,
    shown_line,
    silence_lines,
)
from tarragon.cli.jobview.rows import current_size
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.output.log_lines import stamp_time
from tarragon.cli.output.words import age
from tarragon.cli.targets.pod_logs import FetchedLogs, fetch_pod_logs
from tarragon.cli.targets.stored_logs import LogLine, StoredRun, end_of_run, runs_of_job, written_at
from tarragon.client.errors import ApiError
from tarragon.client.port import LogOptions
from tarragon.job.model import Replica
from tarragon.job.progress import progress_text

LINES = 20
"""Lines of each log that are read: enough to see at which pace a program prints."""
MOST_READ = 32
"""Logs of a cluster that are read, a request each."""


async def running_outputs(target: ClusterTarget, job: ClusterJob) -> Sequence[ReplicaOutput]:
    """Returns what the replicas have printed that train and run; nothing where their logs can't be read."""
    if job.state != RUNNING or job.job is None:
        return ()
    nodes = target.nodes_folder
    if nodes is not None:
        return [_stored_output(nodes, run) for run in _current_runs(nodes, job)]
    size = current_size(job) or job.requested
    members = [Replica(kind, index) for kind, number in size.items() for index in range(number)]
    read = set([replica for replica in members if _is_meant(job, replica)][:MOST_READ])
    with suppress(ApiError, TarragonError):
        async with target.watching() as cluster:
            found = await fetch_pod_logs(cluster, job, read.__contains__, LogOptions(tail_lines=LINES))
        return list(_fetched_outputs(job, read, found))
    return ()


def quiet_lines(
    job: ClusterJob, outputs: Sequence[ReplicaOutput], now: dt.datetime, *, is_local: bool
) -> Iterator[str]:
    """Yields which replicas have printed nothing for long, and how to see where one stands.

    A job that reports its progress without printing it is not quiet.
    """
    quiet, progress = quiet_replicas(outputs, now), job.status.progress
    since_report = None if progress is None else (now - progress.updated_at).total_seconds()
    if not quiet or (since_report is not None and since_report < min(output.silence(now) for output in quiet) / 2):
        return
    if progress is not None and (text := progress_text(progress, now)):
        yield f"its progress is {text}, as of {age(progress.updated_at, now)} ago"
    yield from silence_lines(quiet, now)
    yield f"to see where {quiet[0].replica} stands: {_look(job, quiet[0], is_local=is_local)}"
    yield f"causes, and what else to look at: `{DOCS}`"


def _look(job: ClusterJob, output: ReplicaOutput, *, is_local: bool) -> str:
    if is_local:
        return f"`py-spy dump --pid {output.pid or 'PID'}`, after `pip install py-spy`"
    pod = job.dialect.names.pod(job.job, output.replica) if job.dialect is not None and job.job is not None else "POD"
    return f"`kubectl exec -n {job.key.namespace} {pod} -- py-spy dump --pid 1`, if its image has py-spy"


def _is_meant(job: ClusterJob, replica: Replica) -> bool:
    return prints_while_training(job.framework.roles.get(replica.type))


def _current_runs(nodes: Path, job: ClusterJob) -> Sequence[StoredRun]:
    """Returns the newest run of the main container of each replica, if it has not ended."""
    main = job.framework.main_container
    newest = {
        run.replica: run
        for run in runs_of_job(nodes, job)
        if _is_meant(job, run.replica) and run.container == (main or run.container) and run.started
    }
    return [run for run in newest.values() if run.exit_code is None and not run.finished]


def _stored_output(nodes: Path, run: StoredRun) -> ReplicaOutput:
    """By the time of the file: a bar grows within one line, which has the time of its beginning."""
    lines = end_of_run(run, LINES)
    return ReplicaOutput(
        replica=run.replica,
        at=dt.datetime.fromtimestamp(max(run.started, written_at(run)), dt.UTC),
        started=dt.datetime.fromtimestamp(run.started, dt.UTC),
        last_line=shown_line(line.text for line in lines),
        longest_pause=longest_pause(_times(lines)),
        pid=_process_of(nodes, run),
    )


def _fetched_outputs(job: ClusterJob, read: Collection[Replica], found: FetchedLogs) -> Iterator[ReplicaOutput]:
    """Yields the outputs by the times of their lines. The notes are about replicas that have not started."""
    streams = {lines[0].replica: lines for lines in found.streams if lines}  # the main container's is the last one
    started = job.status.start_time
    for replica, lines in streams.items():
        if times := _times(lines):
            yield ReplicaOutput(
                replica=replica,
                at=times[-1],
                started=times[0] if started is None else started,
                last_line=shown_line(line.text for line in lines),
                longest_pause=longest_pause(times),
            )
    if started is not None and not found.notes:
        silent = sorted(set(read) - set(streams))
        yield from (ReplicaOutput(replica=each, at=started, started=started) for each in silent)


def _times(lines: Sequence[LogLine]) -> Sequence[dt.datetime]:
    return [moment for line in lines if (moment := stamp_time(line.stamp)) is not None]


def _process_of(nodes: Path, run: StoredRun) -> int:
    from tarragon.localcluster.kubelet.base.layout import PodFolder
    from tarragon.localcluster.kubelet.shim.shim_client import state_of

    for folder in nodes.glob(f"*/pods/{run.uid}"):
        state = state_of(PodFolder(folder).run(run.container, run.number))
        if state is not None and state.main is not None:
            return state.main.pid
    return 0
