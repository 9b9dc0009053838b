"""Says how many threads the replicas of a job have that share the cores of this machine. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.progress import STARTING, WAITING, Progress
from tarragon.cli.output.words import joined
from tarragon.cli.targets.stored_logs import StoredRun
from tarragon.job.model import Replica, ReplicaType


def has_started(progress: Progress) -> bool:
    """Whether every replica runs or has run: a program reads its number of threads when it starts."""
    return bool(progress.replicas) and all(each.state not in {WAITING, STARTING} for each in progress.replicas)


def thread_shares(job: ClusterJob, runs: Iterable[StoredRun]) -> Mapping[Replica, int]:
    """Returns the threads of the replicas that share the cores, which those do not that set CPUs or threads."""
    return {
        run.replica: run.threads
        for run in runs
        if run.threads and run.container == (job.framework.main_container or run.container)
    }


def threads_line(shares: Mapping[Replica, int], types: Sequence[ReplicaType], cores: int) -> str:
    """Returns `threads: 2 each for chief, ps and 2 workers, which request no CPUs`, in the order of the types.

    Empty if no replica shares the cores, or each has them all.
    """
    if not shares or set(shares.values()) == {cores}:
        return ""
    by_threads: dict[int, list[Replica]] = {}
    for replica, threads in shares.items():
        by_threads.setdefault(threads, []).append(replica)
    groups = (
        f"{threads} {'each ' if len(replicas) > 1 else ''}for {joined(_names(replicas, types))}"
        for threads, replicas in sorted(by_threads.items(), reverse=True)
    )
    return f"threads: {'; '.join(groups)}, which request{'s' if len(shares) == 1 else ''} no CPUs"


def _names(replicas: Iterable[Replica], types: Sequence[ReplicaType]) -> Sequence[str]:
    """The replicas by type: `chief`, `2 workers`."""
    numbers = Counter(replica.type for replica in replicas)
    return [_name(kind.lower(), numbers[kind]) for kind in dict.fromkeys([*types, *numbers]) if kind in numbers]


def _name(kind: str, number: int) -> str:
    if number == 1:
        return kind
    return f"{number} {kind}" if kind.endswith("s") else f"{number} {kind}s"
