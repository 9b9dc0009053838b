"""Reads logs from this machine's disk, also of finished and deleted jobs, and without a running cluster."""

from __future__ import annotations

import datetime as dt
import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tarragon.base.number_rows import extend_shortened
from tarragon.cli.jobview.jobs import ClusterJob, JobName, NoSuchJob, find_job, parse_job_name
from tarragon.cli.jobview.target import ClusterReader, ClusterTarget
from tarragon.cli.output.log_lines import LineSplitter, Stamp, split_stamp
from tarragon.cli.targets.next_commands import command_line
from tarragon.frameworks.plugin import Dialect, Framework
from tarragon.job.log_rendering import render_line
from tarragon.job.model import CleanPodPolicy, Replica, RunPolicy, TrainingJob
from tarragon.kube.meta import Key
from tarragon.kube.name_validation import subdomain
from tarragon.localcluster.kubelet.pod.logs import LogSelection, read
from tarragon.localcluster.kubelet.pod.stored_logs import RunFacts, StoredPodLogs, find_logs

_END = LogSelection(timestamps=True, tail=2000)
"""The end of a log, in which a failure is explained."""
_FAILURE_LINES = 200
"""Of these, once arrays are shortened."""
_SECONDS_APART = 1.5
"""Times in a status have whole seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """One run of one container of a replica, with its log file. `code` is its exit code; None while it runs.

    `threads` is its share of the machine's cores, 0 if it sets CPUs or threads itself.
    """

    replica: Replica
    container: str
    number: int
    pod: str
    uid: str
    started: float
    finished: float
    exit_code: int | None
    threads: int
    log: Path

    @property
    def seconds(self) -> float | None:
        """How long it ran; None while it runs, or if it never started."""
        return self.finished - self.started if self.finished and self.started else None


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job whose logs are kept, also if it is deleted."""

    framework: Framework
    runs: Sequence[StoredRun]


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log. `stamp` sorts by time, so that the logs of several replicas can be merged."""

    stamp: Stamp
    replica: Replica
    timestamp: str
    text: str


def runs_of_job(nodes: Path | None, job: ClusterJob) -> Sequence[StoredRun]:
    """Returns the runs of an existing job's pods, without those of former jobs of that name."""
    if job.job is None or job.dialect is None:
        return ()
    return _runs(pods_of_job(nodes, job), job.dialect, job.job)


def pods_of_job(nodes: Path | None, job: ClusterJob) -> Sequence[StoredPodLogs]:
    """Returns the job's pods, oldest first, also deleted ones."""
    if job.job is None or job.dialect is None:
        return ()
    owner = job.as_owner
    return [pod for pod in _pods(nodes, job.dialect, job.job) if pod.is_controlled_by(owner)]


def log_folders(nodes: Path | None, job: ClusterJob) -> Mapping[Replica, Path]:
    """Returns the log folder of each replica's newest pod that has logs, also if the pod is deleted."""
    if job.job is None or job.dialect is None:
        return {}
    found = {job.dialect.names.replica_of(job.job, pod.facts.name): pod.folder.path for pod in pods_of_job(nodes, job)}
    return {replica: path for replica, path in found.items() if replica is not None}


def jobs_of_name(nodes: Path | None, wanted: JobName, namespace: str) -> Sequence[StoredJob]:
    """Returns every job that had the name, oldest first, also deleted ones; none if no job can have it."""
    if wanted.is_latest or subdomain(wanted.name):
        return ()
    pods: dict[str, list[StoredPodLogs]] = {}
    readers: dict[str, tuple[Framework, Dialect, TrainingJob]] = {}
    for framework in wanted.frameworks:
        for dialect in framework.dialects:
            job = _job_stub(framework, dialect, Key(namespace, wanted.name))
            for pod in _pods(nodes, dialect, job):
                if not pod.is_controlled_by(replace(job, uid=pod.facts.owner).owner_identity):
                    continue
                if readers.setdefault(pod.facts.owner, (framework, dialect, job))[1] is dialect:
                    pods.setdefault(pod.facts.owner, []).append(pod)
    return [
        _stored_job(of_owner, *readers[owner])
        for owner, of_owner in sorted(pods.items(), key=lambda found: _age_key(found[1]))
    ]


async def find_existing_job(target: ClusterTarget, reader: ClusterReader, name: str) -> ClusterJob:
    """Returns the job of that name, like `find_job`. For a deleted one, the error names the command for its logs."""
    try:
        return await find_job(reader, name, target.namespace)
    except NoSuchJob:
        wanted = parse_job_name(name)
        if not jobs_of_name(target.nodes_folder, wanted, target.namespace):
            raise
        logs = command_line(target.command_prefix, Key(target.namespace, name), "logs")
        raise NoSuchJob(
            f"{name} is deleted",
            why="`delete` deletes a job, and so does Ctrl-C on `run`",
            remedy=f"its logs are kept: {logs}",
        ) from None


def _stored_job(pods: Sequence[StoredPodLogs], framework: Framework, dialect: Dialect, job: TrainingJob) -> StoredJob:
    return StoredJob(framework, _runs(pods, dialect, job))


def _age_key(pods: Sequence[StoredPodLogs]) -> tuple[float, float]:
    """Sort key: when the oldest pod was created. Creation times have whole seconds; the starts of runs break ties."""
    created = min(pod.facts.created for pod in pods)
    return created, min((run.started for pod in pods for run in pod.facts.runs if run.started), default=math.inf)


def merged_stored_lines(
    runs: Sequence[StoredRun], tail: int | None, since: dt.datetime | None, fits: Callable[[LogLine], bool]
) -> Iterator[LogLine]:
    """Yields the lines that fit, in order of time, at most `tail` of each replica."""
    by_replica: dict[Replica, list[StoredRun]] = {}
    for run in runs:
        by_replica.setdefault(run.replica, []).append(run)
    selection = LogSelection(timestamps=True, since=since)
    streams = [_tail(filter(fits, _readable(_lines(runs, selection))), tail) for runs in by_replica.values()]
    return heapq.merge(*streams, key=lambda said: said.stamp)


def failure_output(nodes: Path | None, job: ClusterJob) -> Sequence[str]:
    """Returns the last lines of the kept log of the replica that failed first; none without such a log.

    The job's status has only what fits into a termination message. If that does not end like the log, because a program
    has written its own, the log is not what to show.
    """
    failure = job.status.first_failure
    if failure is None:
        return ()
    lines: deque[str] = deque(maxlen=_FAILURE_LINES)
    for run in runs_of_job(nodes, job):
        is_meant = run.replica == failure.replica and run.exit_code == failure.exit_code
        if is_meant and abs(run.finished - failure.at.timestamp()) <= _SECONDS_APART:
            lines.clear()
            extend_shortened(lines, (said.text for said in _readable(_lines([run], _END))))
    return list(lines) if _last(lines) == _last(failure.message.split("\n")) else ()


def _last(lines: Iterable[str]) -> str:
    return next((line for line in reversed([*lines]) if line.strip()), "").rstrip()


def log_size(run: StoredRun) -> int:
    """Returns the size of the run's newest log file in bytes; 0 if there is none."""
    return run.log.stat().st_size if run.log.exists() else 0


def written_at(run: StoredRun) -> float:
    """Returns when the run last printed, as seconds since 1970; 0 if it has no log."""
    return run.log.stat().st_mtime if run.log.exists() else 0.0


def end_of_run(run: StoredRun, number: int) -> Sequence[LogLine]:
    """Returns the last lines of the run, as a user reads them."""
    return list(_readable(_lines([run], LogSelection(timestamps=True, tail=number))))


def raw_lines(run: StoredRun) -> Sequence[str]:
    """Returns all lines of the run, each with its timestamp."""
    return [f"{said.timestamp} {said.text}" for said in _lines([run], LogSelection(timestamps=True))]


def _tail(said: Iterator[LogLine], tail: int | None) -> Iterable[LogLine]:
    return said if tail is None else deque(said, maxlen=tail)


def _lines(runs: Sequence[StoredRun], selection: LogSelection) -> Iterator[LogLine]:
    for run in runs:
        splitter = LineSplitter()
        for chunk in read(run.log, selection):
            for line in splitter.feed(chunk):
                yield _parsed(run.replica, line)
        for line in splitter.finish():
            yield _parsed(run.replica, line)


def _parsed(replica: Replica, line: str) -> LogLine:
    stamp, text = split_stamp(line)
    return LogLine(stamp, replica, line[: len(line) - len(text)].rstrip(), text)


def _readable(said: Iterable[LogLine]) -> Iterator[LogLine]:
    """Replaces JSON lines by their messages, which may have several lines."""
    for line in said:
        for part in render_line(line.text).split("\n"):
            yield replace(line, text=part)


def _pods(nodes: Path | None, dialect: Dialect, job: TrainingJob) -> Sequence[StoredPodLogs]:
    """Returns the stored pods of the job; empty if the cluster's pods run elsewhere."""
    if nodes is None:
        return ()
    labels = ",".join(f"{name}={value}" for name, value in dialect.selector(job).items())
    return find_logs(nodes, job.key.namespace, labels)


def _runs(pods: Sequence[StoredPodLogs], dialect: Dialect, job: TrainingJob) -> Sequence[StoredRun]:
    """Returns the runs of the pods' containers, in order of their starts."""
    found = [
        _run(replica, pod, run)
        for pod in pods
        for replica in [dialect.names.replica_of(job, pod.facts.name)]
        if replica is not None
        for run in pod.facts.runs
    ]
    return sorted(found, key=lambda run: run.started)


def _run(replica: Replica, pod: StoredPodLogs, run: RunFacts) -> StoredRun:
    return StoredRun(
        replica=replica,
        container=run.container,
        number=run.number,
        pod=pod.facts.name,
        uid=pod.facts.uid,
        started=run.started,
        finished=run.finished,
        exit_code=run.code,
        threads=run.threads,
        log=pod.log(run),
    )


def _job_stub(framework: Framework, dialect: Dialect, key: Key) -> TrainingJob:
    """Returns a job with only the fields that its labels and names are made from."""
    return TrainingJob(
        kind=framework.kind,
        api_version=dialect.api_version,
        dialect=dialect.name,
        key=key,
        uid="",
        creation_time=None,
        replica_specs=(),
        run_policy=RunPolicy(clean_pod_policy=CleanPodPolicy.NONE),
    )
