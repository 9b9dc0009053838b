"""Logs from the disk of this machine: also of jobs that have ended or are deleted, and when no cluster runs."""

from __future__ import annotations

import datetime as dt
import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tarragon.cli.jobview.jobs import JobName, Known
from tarragon.cli.output.log_lines import Lines, Stamp, stamped
from tarragon.frameworks.plugin import Dialect, Framework
from tarragon.job.model import CleanPodPolicy, Replica, RunPolicy, TrainingJob
from tarragon.job.spoken import spoken
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.pod.logs import Wanted, read
from tarragon.localcluster.kubelet.pod.stored_logs import KeptPod, RunFacts, kept_logs


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one container of a replica, and where its log lies. `code` is None while it goes on."""

    replica: Replica
    container: str
    number: int
    pod: str
    uid: str
    started: float
    finished: float
    code: int | None
    log: Path

    @property
    def seconds(self) -> float | None:
        """How long it ran, None while it does or when it never started."""
        return self.finished - self.started if self.finished and self.started else None


@dataclass(frozen=True, slots=True)
class Said:
    """A line of a log. Compares by its moment, so that logs of several replicas can be merged."""

    stamp: Stamp
    replica: Replica
    moment: str
    text: str


def runs_of_job(nodes: Path | None, job: Known) -> Sequence[Run]:
    """Of a job that is there: the runs of its own pods, not of those that had its name before it."""
    if job.job is None or job.dialect is None:
        return ()
    return _runs(pods_of_job(nodes, job), job.dialect, job.job)


def pods_of_job(nodes: Path | None, job: Known) -> Sequence[KeptPod]:
    """Oldest first, those that are gone among them."""
    if job.job is None or job.dialect is None:
        return ()
    owner = job.as_owner
    return [pod for pod in _pods(nodes, job.dialect, job.job) if pod.is_of(owner)]


def log_folders(nodes: Path | None, job: Known) -> Mapping[Replica, Path]:
    """Of each replica the folder of its newest pod that has said anything, also when the pod is gone."""
    if job.job is None or job.dialect is None:
        return {}
    found = {job.dialect.names.replica(job.job, pod.facts.name): pod.folder.path for pod in pods_of_job(nodes, job)}
    return {replica: path for replica, path in found.items() if replica is not None}


def runs_of_name(nodes: Path | None, wanted: JobName, namespace: str) -> Sequence[Sequence[Run]]:
    """Of every job that had the name, the oldest job first; also of those that are deleted."""
    pods: dict[str, list[KeptPod]] = {}
    readers: dict[str, tuple[Dialect, TrainingJob]] = {}
    for framework in wanted.frameworks:
        for dialect in framework.dialects:
            job = _named(framework, dialect, Key(namespace, wanted.name))
            for pod in _pods(nodes, dialect, job):
                if not pod.is_of(replace(job, uid=pod.facts.owner).as_owner):
                    continue
                if readers.setdefault(pod.facts.owner, (dialect, job))[0] is dialect:
                    pods.setdefault(pod.facts.owner, []).append(pod)
    return [
        _runs(of_owner, *readers[owner]) for owner, of_owner in sorted(pods.items(), key=lambda found: _birth(found[1]))
    ]


def _birth(pods: Sequence[KeptPod]) -> tuple[float, float]:
    """Of the first of them. Creations are told in whole seconds only, the beginnings of runs are not."""
    created = min(pod.facts.created for pod in pods)
    return created, min((run.started for pod in pods for run in pod.facts.runs if run.started), default=math.inf)


def lines(
    runs: Sequence[Run], tail: int | None, since: dt.datetime | None, fits: Callable[[Said], bool]
) -> Iterator[Said]:
    """All that they have said and that fits, in order of time; `tail` lines at most of each replica."""
    by_replica: dict[Replica, list[Run]] = {}
    for run in runs:
        by_replica.setdefault(run.replica, []).append(run)
    streams = [_tail(filter(fits, _readable(_lines(of_replica, since))), tail) for of_replica in by_replica.values()]
    return heapq.merge(*streams, key=lambda said: said.stamp)


def size(run: Run) -> int:
    """Bytes of its newest log file; 0 when there is none."""
    return run.log.stat().st_size if run.log.exists() else 0


def as_written(run: Run) -> Sequence[str]:
    """All lines of the run, each with its timestamp."""
    return [f"{said.moment} {said.text}" for said in _lines([run], None)]


def _tail(said: Iterator[Said], tail: int | None) -> Iterable[Said]:
    return said if tail is None else deque(said, maxlen=tail)


def _lines(runs: Sequence[Run], since: dt.datetime | None) -> Iterator[Said]:
    for run in runs:
        whole = Lines()
        for chunk in read(run.log, Wanted(timestamps=True, since=since)):
            for line in whole.feed(chunk):
                yield _said(run.replica, line)
        for line in whole.finish():
            yield _said(run.replica, line)


def _said(replica: Replica, line: str) -> Said:
    stamp, text = stamped(line)
    return Said(stamp, replica, line[: len(line) - len(text)].rstrip(), text)


def _readable(said: Iterable[Said]) -> Iterator[Said]:
    """A line of JSON as its message, which may be several lines."""
    for line in said:
        for part in spoken(line.text).split("\n"):
            yield replace(line, text=part)


def _pods(nodes: Path | None, dialect: Dialect, job: TrainingJob) -> Sequence[KeptPod]:
    """None at all of a cluster whose pods run elsewhere."""
    if nodes is None:
        return ()
    labels = ",".join(f"{name}={value}" for name, value in dialect.selector(job).items())
    return kept_logs(nodes, job.key.namespace, labels)


def _runs(pods: Sequence[KeptPod], dialect: Dialect, job: TrainingJob) -> Sequence[Run]:
    """In order of their beginnings."""
    found = [
        _run(replica, pod, run)
        for pod in pods
        for replica in [dialect.names.replica(job, pod.facts.name)]
        if replica is not None
        for run in pod.facts.runs
    ]
    return sorted(found, key=lambda run: run.started)


def _run(replica: Replica, pod: KeptPod, run: RunFacts) -> Run:
    return Run(
        replica=replica,
        container=run.container,
        number=run.number,
        pod=pod.facts.name,
        uid=pod.facts.uid,
        started=run.started,
        finished=run.finished,
        code=run.code,
        log=pod.log(run),
    )


def _named(framework: Framework, dialect: Dialect, key: Key) -> TrainingJob:
    """As much of a job as its labels and names need."""
    return TrainingJob(
        kind=framework.kind,
        api_version=dialect.api_version,
        generation=dialect.name,
        key=key,
        uid="",
        created=None,
        groups=(),
        run_policy=RunPolicy(clean_pods=CleanPodPolicy.NONE),
    )
