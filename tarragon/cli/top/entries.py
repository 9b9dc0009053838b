"""A job as one row of the page: what stands in its cells, and what it is sorted and found by. Pure."""

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
"""The kind, the namespace and the name."""

_ORDER = ("Failed", "Restarting", "Waiting", "Starting", "Created", "Running")
"""As somebody looks for trouble; all other states come after them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Read once a change, not once a drawing: there may be ten thousand of them."""

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
"""What rows can be sorted by; the newest, the first in the alphabet, trouble, the most come first."""


def chosen(entries: Iterable[Entry], wanted: str, sort: str, *, is_reversed: bool) -> Sequence[Entry]:
    """Those that hold every word that is wanted, in that order."""
    words = wanted.lower().split()
    found = [each for each in entries if fits(each, words)] if words else list(entries)
    return sorted(found, key=SORTS[sort], reverse=is_reversed)


def fits(each: Entry, words: Sequence[str]) -> bool:
    text = f"{each.namespace}/{each.name} {each.state} {each.job.framework.kind} {each.reason}".lower()
    return all(word in text for word in words)


def _rank(state: str) -> int:
    return _ORDER.index(state) if state in _ORDER else len(_ORDER)
