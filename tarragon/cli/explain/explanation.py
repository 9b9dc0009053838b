"""Explains why a job waits or failed, with a remedy, for `tarragon why`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from types import MappingProxyType

import click

from tarragon.base.clock import SystemClock
from tarragon.cli.explain.queue_status import standing_of
from tarragon.cli.explain.quotas import is_held_back
from tarragon.cli.jobview import schema
from tarragon.cli.jobview.causes import End, causes
from tarragon.cli.jobview.exits import NEVER_AGAIN, ended, meaning, never_again
from tarragon.cli.jobview.jobs import Known, find
from tarragon.cli.jobview.rows import reason, replicas, size
from tarragon.cli.jobview.target import Prompt
from tarragon.cli.options.formats import TEXTS, tell
from tarragon.cli.options.settings import Settings
from tarragon.cli.output.log_lines import last, shown
from tarragon.cli.output.words import age
from tarragon.cli.report.wait_report import other_scheduler
from tarragon.cli.targets.next_commands import spelled
from tarragon.cli.targets.resolving import target
from tarragon.job.phase import Phase
from tarragon.job.reason import reason_of
from tarragon.job.status import FirstFailure, JobStatus
from tarragon.kube.codec import timestamp
from tarragon.scheduling.api.decision import NEVER_FITS, NEVER_WITHIN_QUOTA, NO_NODE_MAY

LAST_LINES = 20
_WITHOUT_REASON = MappingProxyType({Phase.SUSPENDED: "", Phase.SUCCEEDED: ": there is nothing to explain"})
"""The text in place of a reason, for phases without one."""

_LARGER = "lower the requests in the manifest, or add a node that is large enough"
_QUOTA = "lower the requests in the manifest, or raise the quota of its namespace (the operator's --queues)"
_ELSEWHERE = "correct the manifest, or make a node match the pods (kubectl label node, kubectl taint node)"


async def why(settings: Settings, name: str, form: str | None) -> None:
    where = target(settings)
    async with where.looking() as looker:
        job = await find(looker, name, where.namespace)
        standing = await standing_of(looker, job, SystemClock())
    now = SystemClock().now()
    lines = [*explained(job, now, where.prompt, standing.place), *standing.lines(now.astimezone())]
    if form is not None:
        click.echo(TEXTS[form]({**schema.job(job, now, lines), **standing.fields()}))
        return
    tell(lines)


def explained(job: Known, now: dt.datetime, prompt: Prompt, place: str = "") -> Iterator[str]:
    """Yield the reason, how long the job has waited, and what happens next.

    For a failed job, yield the last lines of the first failed replica's log and the probable causes.
    """
    status, failure = job.status, job.status.first_failure
    found = reason_of(status)
    text = f"{found.word}: {found.message}" if found.word else reason(job) or other_scheduler(job)
    nothing = _WITHOUT_REASON.get(status.phase, "; nothing is blocking it")
    yield f"{job.key.name} is {job.state}" + (f": {text}" if text else nothing)
    if not status.phase.is_final:
        yield from (f"  warning: {warning}" for warning in job.warnings)
    if status.phase is Phase.FAILED:
        if failure is not None:
            yield from _failure(failure, job)
        return
    if status.phase is Phase.SUSPENDED:
        yield f"  to resume it: {spelled(prompt, job.address, 'resume')}"
        return
    yield from _waiting(status, now, place)
    yield from _size(job, now)


def _waiting(status: JobStatus, now: dt.datetime, place: str) -> Iterator[str]:
    """Yield how long the job has waited, and what happens next."""
    admission, obstacle = status.admission, status.obstacle
    if obstacle is not None:
        yield f"  for {age(obstacle.since, now)}; if it lasts, the job releases its nodes and is requeued"
    if reason_of(status).message.startswith(NEVER_WITHIN_QUOTA):
        yield f"  {_QUOTA}"
    elif reason_of(status).word == NEVER_FITS:
        remedy = _ELSEWHERE if reason_of(status).message.startswith(NO_NODE_MAY) else _LARGER
        yield f"  waiting does not help: {remedy}"
    elif admission is not None and admission.admitted is None:
        yield f"  in the queue for {age(admission.queued, now)}{place}"
        if admission.retry is not None and now < admission.retry.after:
            yield f"  tried {admission.retry.count} times; next attempt at {timestamp(admission.retry.after)}"


def _size(job: Known, now: dt.datetime) -> Iterator[str]:
    """Explain the size of an admitted job: why it was resized, and why it does not grow."""
    admission = job.status.admission
    if admission is None or admission.admitted is None:
        return
    if admission.resized is not None:
        cause = f": {admission.reason}" if admission.reason else ""
        yield f"  it has had {replicas(job)} for {age(admission.resized, now)}{cause}"
    elif _is_below_requested_size(job):
        grows = "" if is_held_back(job) else ", and grows when there is capacity that no waiting job needs"
        yield f"  it started with {replicas(job)}{grows}"
    if admission.wait is not None and admission.wait.code != reason_of(job.status).word:
        yield f"  it can't grow: {admission.wait.code}: {admission.wait.message}"


def _is_below_requested_size(job: Known) -> bool:
    if job.job is None or job.job.elastic is None or job.status.phase.is_final:
        return False
    return any(size(job).get(kind, 0) < requested for kind, requested in job.wished.items())


def _failure(failure: FirstFailure, job: Known) -> Iterator[str]:
    table = (job.dialect or job.framework.dialects[0]).exit_codes
    known = meaning(failure.exit_code, failure.reason, table)
    yield f"  {failure.replica} at {timestamp(failure.at)}: {ended(failure.exit_code)}, {known.kind}: {known.words}"
    group = job.job.group(failure.replica.type) if job.job is not None else None
    if group is not None and never_again(known, group.restart_policy):
        yield f"  {NEVER_AGAIN}"
    lines = last(failure.message.split("\n"), LAST_LINES)
    yield from (f"  │ {shown(line, colors=False)}" for line in lines)
    for cause in causes(End(lines=lines, reason=failure.reason)):
        yield f"  Probably: {cause.what}"
        yield f"    {cause.remedy}"
