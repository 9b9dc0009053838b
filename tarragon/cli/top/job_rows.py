"""A job as one row of the page: its cells, its sort keys and the text that filters match. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tarragon.cli.jobview.gpus import accelerators_of_job
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.rows import current_size, ready, reason, replicas, restarts
from tarragon.cli.output.words import age
from tarragon.kube.meta import Key

JobKey = tuple[str, Key]
"""The kind, and the namespace and name."""

_ORDER = ("Failed", "Restarting", "Waiting", "Starting", "Created", "Running")
"""Sort order of states, problems first; all others follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """The row of a job. Computed once for each change, not for each frame: there may be 10,000 jobs."""

    job: ClusterJob
    key: JobKey
    state: str
    created_at: float
    ready: str
    restarts: int
    gpus: int
    """In thousandths."""
    replicas: str
    reason: str

    @property
    def name(self) -> str:
        return self.job.key.name

    @property
    def namespace(self) -> str:
        return self.job.key.namespace

    def age(self, now: dt.datetime) -> str:
        return age(self.job.created, now)


def job_row(job: ClusterJob) -> JobRow:
    return JobRow(
        job=job,
        key=(job.framework.kind, job.key),
        state=job.state,
        created_at=job.created.timestamp() if job.created is not None else 0.0,
        ready=ready(job),
        restarts=restarts(job),
        gpus=accelerators_of_job(job, current_size(job)),
        replicas=replicas(job),
        reason=reason(job),
    )


SORT_KEYS: Mapping[str, Callable[[JobRow], tuple[object, ...]]] = MappingProxyType(
    {
        "age": lambda each: (-each.created_at, each.namespace, each.name),
        "name": lambda each: (each.name, each.namespace),
        "state": lambda each: (_rank(each.state), -each.created_at, each.name),
        "restarts": lambda each: (-each.restarts, -each.created_at, each.name),
        "gpus": lambda each: (-each.gpus, -each.created_at, each.name),
    }
)
"""Sort keys. First come the newest jobs, names in alphabetical order, failed jobs, the largest number."""


def filter_and_sort(entries: Iterable[JobRow], wanted: str, sort: str, *, is_reversed: bool) -> Sequence[JobRow]:
    """Return the entries that contain every word of `wanted`, sorted."""
    words = wanted.lower().split()
    found = [each for each in entries if matches(each, words)] if words else list(entries)
    return sorted(found, key=SORT_KEYS[sort], reverse=is_reversed)


def matches(each: JobRow, words: Sequence[str]) -> bool:
    text = f"{each.namespace}/{each.name} {each.state} {each.job.framework.kind} {each.reason}".lower()
    return all(word in text for word in words)


def _rank(state: str) -> int:
    return _ORDER.index(state) if state in _ORDER else len(_ORDER)
