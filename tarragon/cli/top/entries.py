"""A job as one row of the page: its cells, its sort keys and the text that filters match. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tarragon.cli.jobview.gpus import of_job
from tarragon.cli.jobview.jobs import Known
from tarragon.cli.jobview.rows import ready, reason, replicas, restarts, size
from tarragon.cli.output.words import age
from tarragon.kube.meta import Key

JobKey = tuple[str, Key]
"""The kind, and the namespace and name."""

_ORDER = ("Failed", "Restarting", "Waiting", "Starting", "Created", "Running")
"""Sort order of states, problems first; all others follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The row of a job. Computed once for each change, not for each frame: there may be 10,000 jobs."""

    job: Known
    key: JobKey
    state: str
    born: float
    ready: str
    restarts: int
    gpus: int
    replicas: str
    reason: str

    @property
    def name(self) -> str:
        return self.job.key.name

    @property
    def namespace(self) -> str:
        return self.job.key.namespace

    def age(self, now: dt.datetime) -> str:
        return age(self.job.born, now)


def entry(job: Known) -> Entry:
    return Entry(
        job=job,
        key=(job.framework.kind, job.key),
        state=job.state,
        born=job.born.timestamp() if job.born is not None else 0.0,
        ready=ready(job),
        restarts=restarts(job),
        gpus=of_job(job, size(job)),
        replicas=replicas(job),
        reason=reason(job),
    )


SORTS: Mapping[str, Callable[[Entry], tuple[object, ...]]] = MappingProxyType(
    {
        "age": lambda each: (-each.born, each.namespace, each.name),
        "name": lambda each: (each.name, each.namespace),
        "state": lambda each: (_rank(each.state), -each.born, each.name),
        "restarts": lambda each: (-each.restarts, -each.born, each.name),
        "gpus": lambda each: (-each.gpus, -each.born, each.name),
    }
)
"""Sort keys. First come the newest jobs, names in alphabetical order, failed jobs, the largest number."""


def chosen(entries: Iterable[Entry], wanted: str, sort: str, *, is_reversed: bool) -> Sequence[Entry]:
    """Return the entries that contain every word of `wanted`, sorted."""
    words = wanted.lower().split()
    found = [each for each in entries if fits(each, words)] if words else list(entries)
    return sorted(found, key=SORTS[sort], reverse=is_reversed)


def fits(each: Entry, words: Sequence[str]) -> bool:
    text = f"{each.namespace}/{each.name} {each.state} {each.job.framework.kind} {each.reason}".lower()
    return all(word in text for word in words)


def _rank(state: str) -> int:
    return _ORDER.index(state) if state in _ORDER else len(_ORDER)
