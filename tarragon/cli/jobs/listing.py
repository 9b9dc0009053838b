"""What `list` shows of which jobs, and in which order."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tarragon.cli.jobview.gpus import of_job
from tarragon.cli.jobview.jobs import Known
from tarragon.cli.jobview.queueing import JobKey, key
from tarragon.cli.jobview.rows import header, restarts, row, size
from tarragon.cli.jobview.target import Target
from tarragon.cli.options.settings import Settings
from tarragon.client.port import Selection

_TROUBLE = ("Failed", "Restarting", "Waiting", "Starting", "Created", "Running")
_LAST = 10**9

Place = int
Order = Callable[[Known, Place], tuple[object, ...]]

ORDERS: Mapping[str, Order] = MappingProxyType(
    {
        "name": lambda job, _: (job.key, job.framework.kind),
        "age": lambda job, _: (-_born(job), job.key),
        "state": lambda job, _: (_trouble(job.state), job.key),
        "gpus": lambda job, _: (-of_job(job, size(job)), job.key),
        "restarts": lambda job, _: (-restarts(job), job.key),
        "queue": lambda job, place: (place, job.key),
    }
)
"""The newest, those in trouble, the most, the next in the queue come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which jobs, and how they are shown."""

    settings: Settings
    where: Target
    selection: Selection
    form: str
    order: str = "name"
    has_header: bool = True
    shows_managed: bool = False

    @property
    def header(self) -> Sequence[str]:
        return header(is_wide=self.form == "wide", names_namespace=not self.selection.namespace)

    def row(self, job: Known, now: dt.datetime, queue: Mapping[JobKey, int]) -> Sequence[str]:
        return row(
            job,
            now,
            is_wide=self.form == "wide",
            names_namespace=not self.selection.namespace,
            place=queue.get(key(job)),
        )


def in_order(jobs: Iterable[Known], order: str, queue: Mapping[JobKey, int]) -> Sequence[Known]:
    return sorted(jobs, key=lambda job: ORDERS[order](job, queue.get(key(job), _LAST)))


def _born(job: Known) -> float:
    return job.born.timestamp() if job.born is not None else 0.0


def _trouble(state: str) -> int:
    return _TROUBLE.index(state) if state in _TROUBLE else len(_TROUBLE)
