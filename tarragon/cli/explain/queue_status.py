"""Reports the queue status of a waiting job: its position, the resources it lacks, and when it will probably start."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tarragon.base.clock import Clock
from tarragon.cli.explain.forbidden_lists import FORBIDDEN_TEXT, JOBS
from tarragon.cli.explain.operator_config import OperatorConfig, read_published_config
from tarragon.cli.explain.quotas import QuotaUse, is_quota_limited, quota_use_by_others
from tarragon.cli.jobview.gpus import accelerators_of_job, count_of_gpus, json_number
from tarragon.cli.jobview.jobs import ClusterJob, list_jobs
from tarragon.cli.jobview.progress import wait_of
from tarragon.cli.jobview.queueing import is_queued, job_key, job_name_of_gang, never_fits, queued_jobs, wait_cause
from tarragon.cli.jobview.rows import current_size
from tarragon.cli.jobview.target import ClusterReader
from tarragon.cli.output.words import count, joined
from tarragon.cli.targets.extras import LOCAL
from tarragon.client.errors import Forbidden
from tarragon.client.port import Selector
from tarragon.job.model import gang_name
from tarragon.kube.codec import format_time
from tarragon.kube.meta import Json
from tarragon.scheduling.api.decision import WaitCause

if TYPE_CHECKING:
    from tarragon.cli.report.wait_report import Shortage
    from tarragon.scheduling.explain.forecast import Forecast, NoForecast

MAX_AHEAD = 5
DOCS = "tarragon docs scheduling#why-a-job-waits"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """The queue status of a job. Fields that are None or empty are unknown or do not apply."""

    job: ClusterJob
    ahead: Sequence[ClusterJob] = ()
    """The jobs ahead in the queue; the next to start comes first."""
    queued: int = 0
    """The number of jobs in the queue that this user may see."""
    shortage: Shortage | None = None
    expected_start: Forecast | NoForecast | None = None
    holdings: Sequence[QuotaUse] = ()
    """The use of the namespace's quota by other jobs, if the quota limits this one."""
    never_fits: bool = False
    """The job never fits, so its position and the resources held by others do not matter."""
    forbidden: Sequence[str] = ()
    """Keys of `FORBIDDEN_TEXT`: what this user may not list."""
    operator_config: OperatorConfig | None = None
    """The operator's scheduling configuration; None if it was not read."""
    has_scheduler: bool = True
    """Whether this installation has the scheduler, which computes the shortage and the expected start."""

    @property
    def position_text(self) -> str:
        """The position in the queue, as the end of a sentence."""
        seen = " that you may see" if JOBS in self.forbidden else ""
        return f", at position {len(self.ahead) + 1} of {self.queued}{seen}" if self.queued else ""

    def lines(self, now: dt.datetime) -> Iterator[str]:
        """Yield the status as text, with times in the time zone of `now`."""
        if self.operator_config is not None and (
            self.expected_start is not None or not self.operator_config.assumed_because
        ):
            yield from (f"  {line}" for line in self.operator_config.lines())
        if self.ahead:
            named = [_described(job, self.job.key.namespace) for job in self.ahead[:MAX_AHEAD]]
            more = [f"{len(self.ahead) - MAX_AHEAD} more"] if len(self.ahead) > MAX_AHEAD else []
            yield f"  ahead of it: {joined([*named, *more])}"
        yield from (f"  {line}" for line in self._outlook_lines(now))
        if not self.has_scheduler:
            yield "  what it lacks and when it starts is not known here, as that needs the scheduler; to install it:"
            yield f"    {LOCAL.install_command}"
        if self.forbidden:
            yield (
                "  not considered, because you may not list: "
                f"{joined([FORBIDDEN_TEXT[each] for each in self.forbidden])}"
            )
        if self.queued or self.never_fits:
            yield f"  more: {DOCS}"

    def _outlook_lines(self, now: dt.datetime) -> Iterator[str]:
        if not self.holdings and self.shortage is None and self.expected_start is None:
            return
        from tarragon.cli.report import wait_report

        if self.holdings:
            yield wait_report.quota_line(self.job.key.namespace, self.holdings)
        if self.shortage is not None and self.never_fits:
            yield from wait_report.refusing_nodes_lines(self.shortage)
        elif self.shortage is not None:
            yield from wait_report.shortage_lines(self.shortage)
        if self.expected_start is not None:
            yield wait_report.start_estimate_line(self.expected_start, now)

    def fields(self) -> Mapping[str, Json]:
        """Return the status for JSON and YAML; empty for a job that does not wait and that no quota limits."""
        admission = self.job.status.admission
        outlook = self._outlook_fields()
        if admission is None or not (self.queued or self.never_fits):
            return {name: outlook[name] for name in ("quota",) if name in outlook}
        wait = admission.wait
        found: dict[str, Json] = {
            "wait": {
                "code": wait.code if wait is not None else "",
                "message": wait.message if wait is not None else "",
                "since": format_time(admission.queued_at),
                **({} if self.never_fits else self._place()),
                "docs": DOCS,
            },
            "unseen": list(self.forbidden),
        }
        if self.operator_config is not None:
            found["operator"] = self.operator_config.fields()
        return {**found, **outlook}

    def _outlook_fields(self) -> Mapping[str, Json]:
        if not self.holdings and self.shortage is None and self.expected_start is None:
            return {}
        from tarragon.cli.report import wait_report

        found: dict[str, Json] = {}
        if self.holdings:
            held = wait_report.holders_fields(self.holdings)
            found["quota"] = {"namespace": self.job.key.namespace, "heldBy": held}
        if self.shortage is not None:
            found["short"] = wait_report.shortage_fields(self.shortage)
        if self.expected_start is not None:
            found["starts"] = wait_report.start_estimate_fields(self.expected_start)
        return found

    def _place(self) -> Mapping[str, Json]:
        return {"place": len(self.ahead) + 1, "of": self.queued, "ahead": [_as_fields(job) for job in self.ahead]}


async def queue_status(reader: ClusterReader, job: ClusterJob, clock: Clock) -> QueueStatus:
    """Find out the queue status of a job. A running job has one only if a quota limits its size."""
    standing = await _queue_status(reader, job, clock)
    if never_fits(job) or not is_quota_limited(job) or LOCAL.missing:
        return standing
    namespace = job.key.namespace
    ways = standing.operator_config or (
        OperatorConfig() if job.is_offline else await read_published_config(reader, namespace)
    )
    try:
        jobs = await list_jobs(reader, Selector(namespace=namespace))
    except Forbidden:
        return standing
    return replace(standing, holdings=quota_use_by_others(job, jobs, ways.config.rules))


async def _queue_status(reader: ClusterReader, job: ClusterJob, clock: Clock) -> QueueStatus:
    """Find out the position and the shortage. In a cluster that is not running, only the position is known."""
    if never_fits(job):
        # The nodes do not matter to a job that exceeds its quota.
        ignores_nodes = job.is_offline or wait_cause(wait_of(job.status)) == WaitCause.LARGER_THAN_QUOTA
        if ignores_nodes:
            return QueueStatus(job=job)
        defaults = OperatorConfig()
        return await _with_outlook(reader, QueueStatus(job=job, never_fits=True), (), clock, defaults)
    if not is_queued(job):
        return QueueStatus(job=job)
    try:
        jobs, unseen = await list_jobs(reader, Selector()), []
    except Forbidden:
        unseen = [JOBS]
        try:
            jobs = await list_jobs(reader, Selector(namespace=job.key.namespace))
        except Forbidden:
            return QueueStatus(job=job, forbidden=unseen)
    ordered = queued_jobs(jobs)
    place = next((place for place, each in enumerate(ordered) if job_key(each) == job_key(job)), None)
    if place is None:
        return QueueStatus(job=job, forbidden=unseen)
    standing = QueueStatus(job=job, ahead=ordered[:place], queued=len(ordered), forbidden=unseen)
    if job.is_offline:
        return standing
    config = await read_published_config(reader, job.key.namespace)
    return await _with_outlook(reader, replace(standing, operator_config=config), ordered, clock, config)


async def _with_outlook(
    reader: ClusterReader, standing: QueueStatus, queued: Sequence[ClusterJob], clock: Clock, config: OperatorConfig
) -> QueueStatus:
    """Add what the scheduler would say of the job, if there is one in this installation."""
    if LOCAL.missing:
        return replace(standing, has_scheduler=False)
    from tarragon.cli.explain.scheduler_view import build_scheduler_view
    from tarragon.cli.explain.scheduling_outlook import with_outlook

    seen = await build_scheduler_view(reader, standing.job.key.namespace, clock, config.config.rules)
    return with_outlook(standing, seen, queued, config)


def gang_of(job: ClusterJob) -> str:
    return gang_name(job.framework.kind, job.key)


def _described(job: ClusterJob, namespace: str) -> str:
    number = sum(current_size(job).values())
    gpus = accelerators_of_job(job, current_size(job))
    sizes = [count(number, "replica"), *([count_of_gpus(gpus)] if gpus else [])]
    return f"{job_name_of_gang(gang_of(job), namespace)} ({', '.join(sizes)})"


def _as_fields(job: ClusterJob) -> Json:
    number = sum(current_size(job).values())
    return {
        "name": job.key.name,
        "namespace": job.key.namespace,
        "job": job.name,
        "replicas": number,
        "gpus": json_number(accelerators_of_job(job, current_size(job))),
    }
