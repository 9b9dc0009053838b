"""The selection, order and columns of `tarragon list`."""

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

_STATE_ORDER = ("Failed", "Restarting", "Waiting", "Starting", "Created", "Running")
_LAST = 10**9

Place = int
Order = Callable[[Known, Place], tuple[object, ...]]

ORDERS: Mapping[str, Order] = MappingProxyType(
    {
        "name": lambda job, _: (job.key, job.framework.kind),
        "age": lambda job, _: (-_creation_time(job), job.key),
        "state": lambda job, _: (_state_rank(job.state), job.key),
        "gpus": lambda job, _: (-of_job(job, size(job)), job.key),
        "restarts": lambda job, _: (-restarts(job), job.key),
        "queue": lambda job, place: (place, job.key),
    }
)
"""Sort keys of `--sort-by`. First come the newest jobs, failed jobs, the largest number, the head of the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The jobs that are listed, and how they are printed."""

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


def _creation_time(job: Known) -> float:
    return job.born.timestamp() if job.born is not None else 0.0


def _state_rank(state: str) -> int:
    return _STATE_ORDER.index(state) if state in _STATE_ORDER else len(_STATE_ORDER)
