"""What a cron job does now: which start is due, what becomes of its jobs, when to look again. Pure."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass

from tarragon.base.times import later
from tarragon.kube.codec import moment, timestamp
from tarragon.localcluster.api.cron_schedule import Schedule
from tarragon.localcluster.controllers.workloads.model import CronJob, Job, Json

SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
LONGEST_SECONDS = 60.0
"""Between two looks: the seconds of a pause do not go on while a machine sleeps, and clocks are set."""
_MOST_MISSED = 100
"""After so many missed starts somebody is told to look at the clocks and the deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`start`: the time for which a job is due. `stop`: jobs that it replaces. `late`: why a start was missed."""

    start: dt.datetime | None = None
    stop: Sequence[Job] = ()
    forget: Sequence[Job] = ()
    late: str = ""
    again: float | None = None


@dataclass(frozen=True, slots=True)
class Missed:
    """The last start that is due, if any, and how many there were."""

    last: dt.datetime | None
    count: int


def plan(cron_job: CronJob, jobs: Sequence[Job], now: dt.datetime) -> Plan:
    forget = to_forget(cron_job, jobs)
    if cron_job.spec.suspend or cron_job.metadata.is_ending:
        return Plan(forget=forget)
    schedule, zone = Schedule.parse(cron_job.spec.schedule), _zone(cron_job)
    upcoming = schedule.after(now, zone)
    again = None if upcoming is None else min(max(0.0, (upcoming - now).total_seconds()) + 0.05, LONGEST_SECONDS)
    missed = _missed(schedule, zone, _last(cron_job, now), now)
    late = "Too many missed start times" if missed.count > _MOST_MISSED else ""
    due = missed.last
    if due is None:
        return Plan(forget=forget, again=again)
    deadline = cron_job.spec.starting_deadline_seconds
    if deadline is not None and later(due, deadline) < now:
        late = f"Missed scheduled time to start a job: {due.strftime('%a, %d %b %Y %H:%M:%S +0000')}"
        return Plan(forget=forget, late=late, again=again)
    running = [job for job in jobs if not job.is_finished]
    if running and cron_job.spec.concurrency_policy == "Forbid":
        return Plan(forget=forget, late=late, again=again)
    stop = running if cron_job.spec.concurrency_policy == "Replace" else ()
    return Plan(start=due, stop=stop, forget=forget, late=late, again=again)


def _last(cron_job: CronJob, now: dt.datetime) -> dt.datetime:
    """The moment after which starts count: the last start, and no further back than the deadline reaches."""
    last = cron_job.status.get("lastScheduleTime")
    since = moment(last) if last else cron_job.metadata.creation_timestamp or now
    deadline = cron_job.spec.starting_deadline_seconds
    return since if deadline is None else max(since, later(now, -deadline))


def _missed(schedule: Schedule, zone: dt.tzinfo, since: dt.datetime, now: dt.datetime) -> Missed:
    if schedule.every:
        count = int((now - since).total_seconds()) // schedule.every
        return Missed(since + dt.timedelta(seconds=count * schedule.every) if count else None, count)
    found, count = None, 0
    # Of a long absence only its end is of interest, and a week holds all that is more frequent than that.
    if now - since > dt.timedelta(days=7) and (recent := schedule.after(now - dt.timedelta(days=7), zone)):
        since, count = (now - dt.timedelta(days=7), _MOST_MISSED) if recent <= now else (since, 0)
    upcoming = schedule.after(since, zone)
    while upcoming is not None and upcoming <= now:
        found, count = upcoming, count + 1
        upcoming = schedule.after(upcoming, zone)
    return Missed(found, count)


def to_forget(cron_job: CronJob, jobs: Sequence[Job]) -> list[Job]:
    """Ended jobs beyond the history that is wanted, the oldest first."""
    gone: list[Job] = []
    limits = (
        ("Complete", cron_job.spec.successful_jobs_history_limit),
        ("Failed", cron_job.spec.failed_jobs_history_limit),
    )
    for kind, limit in limits:
        ended = sorted((job for job in jobs if job.has(kind) and not job.metadata.is_ending), key=_age)
        gone += ended[: max(0, len(ended) - limit)]
    return gone


def job_name(cron_job: CronJob, at: dt.datetime) -> str:
    """The same for the same start: made twice, it is there already."""
    return f"{cron_job.metadata.name}-{int(at.timestamp()) // 60}"


def status(jobs: Sequence[Job], known: Json, started: dt.datetime | None) -> Json:
    active = [_reference(job) for job in sorted(jobs, key=_age) if not job.is_finished]
    done = [each for job in jobs if job.has("Complete") and (each := job.status.get("completionTime"))]
    last = max([*done, *filter(None, [known.get("lastSuccessfulTime")])], default=None)
    return {
        "active": active or None,
        "lastScheduleTime": timestamp(started) if started is not None else known.get("lastScheduleTime"),
        "lastSuccessfulTime": last,
    }


def _reference(job: Job) -> Json:
    meta = job.metadata
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": meta.name,
        "namespace": meta.namespace,
        "resourceVersion": meta.resource_version,
        "uid": meta.uid,
    }


def _zone(cron_job: CronJob) -> dt.tzinfo:
    """UTC if none is said: that is what the process of a real controller has."""
    if cron_job.spec.time_zone:
        return zoneinfo.ZoneInfo(cron_job.spec.time_zone)
    return dt.UTC


def _age(job: Job) -> tuple[str, str]:
    created = job.metadata.creation_timestamp
    return (created.isoformat() if created else "", job.metadata.name)
