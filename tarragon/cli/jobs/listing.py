"""The selection, order and columns of `tarragon list`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from tarragon.cli.jobview.gpus import accelerators_of_job
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.queueing import JobKey, job_key
from tarragon.cli.jobview.rows import current_size, fit_wide_table, fit_width, header, job_row, restarts
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.options.settings import GlobalOptions
from tarragon.client.port import Selector

_STATE_ORDER = ("Failed", "Restarting", "Waiting", "Starting", "Created", "Running")
_LAST = 10**9

QueuePosition = int
SortKey = Callable[[ClusterJob, QueuePosition], tuple[object, ...]]

SORT_KEYS: Mapping[str, SortKey] = MappingProxyType(
    {
        "name": lambda job, _: (job.key, job.framework.kind),
        "age": lambda job, _: (-_creation_time(job), job.key),
        "state": lambda job, _: (_state_rank(job.state), job.key),
        "gpus": lambda job, _: (-accelerators_of_job(job, current_size(job)), job.key),
        "restarts": lambda job, _: (-restarts(job), job.key),
        "queue": lambda job, place: (place, job.key),
    }
)
"""Sort keys of `--sort-by`. First come the newest jobs, failed jobs, the largest number, the head of the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTable:
    """The jobs that are listed, and how they are printed."""

    settings: GlobalOptions
    target: ClusterTarget
    selection: Selector
    form: str
    order: str = "name"
    has_header: bool = True
    shows_managed: bool = False
    states: frozenset[str] = frozenset()
    """The states of the listed jobs, in lower case; all states if empty."""
    names_kind: bool = False
    """Whether there is a column for the kind, which the wide table always has."""

    def naming_kinds_of(self, jobs: Iterable[ClusterJob]) -> JobTable:
        """Returns the table with a column for the kind if the jobs are of several kinds."""
        return replace(self, names_kind=len({job.framework.kind for job in jobs}) > 1)

    def shows(self, job: ClusterJob) -> bool:
        return not self.states or job.state.lower() in self.states

    @property
    def header(self) -> Sequence[str]:
        return header(
            is_wide=self.form == "wide",
            names_namespace=not self.selection.namespace,
            names_kind=self.names_kind,
        )

    def row(self, job: ClusterJob, now: dt.datetime, queue: Mapping[JobKey, int]) -> Sequence[str]:
        return job_row(
            job,
            now,
            is_wide=self.form == "wide",
            names_namespace=not self.selection.namespace,
            names_kind=self.names_kind,
            place=queue.get(job_key(job)),
        )

    def fitted(self, rows: Sequence[Sequence[str]], width: int) -> Sequence[Sequence[str]]:
        """Returns the header and the rows with the columns that a terminal of this width has room for."""
        return fit_wide_table(rows, width) if self.form == "wide" else fit_width(rows, width)


def sort_jobs(jobs: Iterable[ClusterJob], order: str, queue: Mapping[JobKey, int]) -> Sequence[ClusterJob]:
    return sorted(jobs, key=lambda job: SORT_KEYS[order](job, queue.get(job_key(job), _LAST)))


def _creation_time(job: ClusterJob) -> float:
    return job.created.timestamp() if job.created is not None else 0.0


def _state_rank(state: str) -> int:
    return _STATE_ORDER.index(state) if state in _STATE_ORDER else len(_STATE_ORDER)
