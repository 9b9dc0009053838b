"""Explains why a job waits or failed, with a remedy, for `tarragon why`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from tarragon.base.clock import SystemClock
from tarragon.base.resources import GPU_MEMORY_LABEL
from tarragon.cli.explain.ending_pods import ending_lines, pods_to_explain
from tarragon.cli.explain.missing_objects import missing_object_remedy
from tarragon.cli.explain.queue_status import QueueStatus, queue_status
from tarragon.cli.explain.quotas import is_quota_limited
from tarragon.cli.explain.replica_output import quiet_lines, running_outputs
from tarragon.cli.jobview import schema
from tarragon.cli.jobview.causes import ReplicaEnd, ReplicaEnvironment, probable_causes
from tarragon.cli.jobview.exits import (
    crash_advice,
    end_text,
    explain_exit,
    is_restart_forbidden,
    restart_forbidden_text,
)
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.progress import STOPPING, wait_of
from tarragon.cli.jobview.queueing import wait_cause
from tarragon.cli.jobview.restarts import earlier_end, restart_lines
from tarragon.cli.jobview.rows import current_size, reason, replicas
from tarragon.cli.jobview.target import ClusterReader, ClusterTarget, CommandPrefix
from tarragon.cli.manifest.overrides import cpu_only_hint
from tarragon.cli.manifest.replica_environments import replica_environments
from tarragon.cli.options.formats import FORMATTERS, print_lines
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.output.log_lines import terminal_text
from tarragon.cli.output.words import age
from tarragon.cli.targets.extras import SIMULATE, require_extra
from tarragon.cli.targets.next_commands import command_line
from tarragon.cli.targets.resolving import resolve_target
from tarragon.cli.targets.stored_logs import failure_output, find_existing_job
from tarragon.job.excerpt import LINE_LENGTH, telling_excerpt
from tarragon.job.model import ReplicaType, gang_name
from tarragon.job.phase import Phase
from tarragon.job.status import FirstFailure, JobStatus
from tarragon.job.status_reason import reason_of
from tarragon.job.tracebacks import short_line
from tarragon.kube.codec import format_time
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.scheduling.api.decision import NEVER_FITS, WaitCause

if TYPE_CHECKING:
    from tarragon.cli.explain.what_if_output import WhatIfReport

LOG_LINES = 20
OWN_SCHEDULER = OperatorSettings().scheduler_name
_WITHOUT_REASON = MappingProxyType({Phase.SUSPENDED: "", Phase.SUCCEEDED: ": there is nothing to explain"})
"""The text in place of a reason, for phases without one."""

_LARGER = "lower the requests in the manifest, or add a node that is large enough"
_QUOTA = "lower the requests in the manifest, or raise the quota of its namespace (the operator's --queues)"
_REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        WaitCause.NO_ELIGIBLE_NODE: "correct the manifest, or make a node match the pods "
        "(kubectl label node, kubectl taint node)",
        WaitCause.GPU_MEMORY_UNKNOWN: f"run NVIDIA's GPU feature discovery, or say it yourself, in MiB: "
        f"kubectl label node NODE {GPU_MEMORY_LABEL}=16384",
    }
)
"""What helps a job that never fits, where that is not `_LARGER`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFacts:
    """What only the machine knows on which the replicas ran: their environments, and the first failed one's output."""

    environments: Mapping[ReplicaType, ReplicaEnvironment] = field(default_factory=dict)
    failure_output: Sequence[str] = ()
    """The last lines of its kept log; empty if there is none."""
    quiet_lines: Sequence[str] = ()
    """What is said of running replicas that have printed nothing for long."""


async def print_explanation(
    settings: GlobalOptions, name: str, form: str | None, changes: Sequence[tuple[str, str]] = ()
) -> None:
    where = resolve_target(settings)
    ask = None if not changes else _what_if(settings, where, changes)
    report = None
    async with where.reading() as reader:
        job = await find_existing_job(where, reader, name)
        standing = QueueStatus(job=job) if job.state == STOPPING else await queue_status(reader, job, SystemClock())
        pods = await pods_to_explain(reader, job)
        if ask is not None:
            report = await ask(reader, job.key.namespace)
    outputs = await running_outputs(where, job)
    now = SystemClock().now()
    local = LocalFacts(
        environments=replica_environments(job, is_local=where.is_local),
        failure_output=failure_output(where.nodes_folder, job),
        quiet_lines=list(quiet_lines(job, outputs, now, is_local=where.is_local)),
    )
    lines = [
        *explanation_lines(job, now, where.command_prefix, standing.position_text, local),
        *ending_lines(job, pods, now, is_local=where.is_local),
        *(_without_gpus(job) if where.is_local else ()),
        *standing.lines(now.astimezone()),
        *([] if report is None else (f"  {line}" for line in report.job_lines(gang_name(job.framework.kind, job.key)))),
    ]
    if form is not None:
        fields = {**standing.fields(), **({} if report is None else {"whatIf": report.fields()})}
        click.echo(FORMATTERS[form]({**schema.job_document(job, now, lines), **fields}))
        return
    print_lines(lines)


def _what_if(
    settings: GlobalOptions, where: ClusterTarget, changes: Sequence[tuple[str, str]]
) -> Callable[[ClusterReader, str], Awaitable[WhatIfReport]]:
    """Check the changes, and return what simulates the queue with them for a user in a namespace."""
    require_extra(SIMULATE, "--what-if")
    from tarragon.cli.explain.what_if import ask_what_if, load_jobs, what_if_of_pairs
    from tarragon.cli.explain.what_if_output import WhatIfReport

    asked = what_if_of_pairs(changes)
    added = load_jobs(where, settings, asked)

    async def ask(reader: ClusterReader, namespace: str) -> WhatIfReport:
        result = await ask_what_if(reader, where, asked, added, SystemClock())
        return WhatIfReport(result=result, namespace=namespace)

    return ask


def _without_gpus(job: ClusterJob) -> Iterator[str]:
    """Yield how a job that can never start on this machine runs without its GPUs."""
    wait = wait_of(job.status)
    hint = cpu_only_hint(job.object.spec)
    if hint and wait is not None and wait.code == NEVER_FITS:
        yield f"  {hint}"


def explanation_lines(
    job: ClusterJob,
    now: dt.datetime,
    prompt: CommandPrefix,
    place: str = "",
    local: LocalFacts = LocalFacts(),
) -> Iterator[str]:
    """Yield the reason, how long the job has waited, and what happens next.

    For a failed job, yield the last lines of the first failed replica's log and the probable causes.
    """
    if job.state == STOPPING:
        yield f"{job.key.name} is {STOPPING}: it is being deleted"
        return
    status, failure = job.status, job.status.first_failure
    found = reason_of(status)
    text = f"{found.reason}: {found.message}" if found.reason else reason(job) or other_scheduler_line(job)
    free = "; nothing keeps its replicas from running" if local.quiet_lines else "; nothing is blocking it"
    nothing = _WITHOUT_REASON.get(status.phase, free)
    yield f"{job.key.name} is {job.state}" + (f": {text}" if text else nothing)
    if not status.phase.is_final:
        yield from (f"  warning: {warning}" for warning in job.warnings)
        yield from _mistakes(job)
    if status.phase is Phase.FAILED:
        if failure is not None:
            yield from _failure(failure, job, local)
        yield from _mistakes(job)
        return
    if status.phase is Phase.SUSPENDED:
        yield f"  to resume it: {command_line(prompt, job.command_key, 'resume')}"
        return
    yield from _waiting(status, now, place)
    yield from _missing_object(job)
    if status.phase is not Phase.SUCCEEDED:
        yield from (f"  {line}" for line in restart_lines(status, now))
    yield from _size(job, now)
    yield from (f"  {line}" for line in local.quiet_lines)


def _missing_object(job: ClusterJob) -> Iterator[str]:
    """Yield how to create what pods wait for, such as a Secret."""
    obstacle = job.status.obstacle
    remedy = "" if obstacle is None else missing_object_remedy(obstacle.message, job.key.namespace)
    if remedy:
        yield f"  {remedy}"


def other_scheduler_line(job: ClusterJob) -> str:
    """Explain that a job waits for the other scheduler that its pods name; empty if it does not."""
    if job.job is None or job.status.admission is not None or job.status.phase is not Phase.CREATED:
        return ""
    groups = (group for group in job.job.replica_specs if group.replicas)
    named = {str(group.template.get("spec", {}).get("schedulerName") or "") for group in groups}
    others = sorted(named - {"", OWN_SCHEDULER})
    if not others:
        return ""
    return f"waiting for the scheduler {', '.join(others)} (schedulerName of its pods); Tarragon does not schedule them"


def _waiting(status: JobStatus, now: dt.datetime, place: str) -> Iterator[str]:
    """Yield how long the job has waited, and what happens next."""
    admission, obstacle, wait = status.admission, status.obstacle, wait_of(status)
    if obstacle is not None:
        yield f"  for {age(obstacle.since, now)}; if it lasts, the job releases its nodes and is requeued"
    if wait_cause(wait) == WaitCause.LARGER_THAN_QUOTA:
        yield f"  {_QUOTA}"
    elif wait is not None and wait.code == NEVER_FITS:
        yield f"  waiting does not help: {_REMEDIES.get(wait_cause(wait), _LARGER)}"
    elif admission is not None and admission.admitted_at is None:
        yield f"  in the queue for {age(admission.queued_at, now)}{place}"
        if admission.backoff is not None and now < admission.backoff.not_before:
            yield (
                f"  tried {admission.backoff.attempts} times; next attempt at "
                f"{format_time(admission.backoff.not_before)}"
            )


def _size(job: ClusterJob, now: dt.datetime) -> Iterator[str]:
    """Explain the size of an admitted job: why it was resized, and why it does not grow."""
    admission = job.status.admission
    if admission is None or admission.admitted_at is None:
        return
    if admission.resized_at is not None:
        cause = f": {admission.resize_reason}" if admission.resize_reason else ""
        yield f"  it has had {replicas(job)} for {age(admission.resized_at, now)}{cause}"
    elif _is_below_requested_size(job):
        grows = "" if is_quota_limited(job) else ", and grows when there is capacity that no waiting job needs"
        yield f"  it started with {replicas(job)}{grows}"
    if admission.wait is not None and admission.wait.code != reason_of(job.status).reason:
        yield f"  it can't grow: {admission.wait.code}: {admission.wait.message}"


def _is_below_requested_size(job: ClusterJob) -> bool:
    if job.job is None or job.job.elastic_policy is None or job.status.phase.is_final:
        return False
    return any(current_size(job).get(kind, 0) < requested for kind, requested in job.requested.items())


def _mistakes(job: ClusterJob) -> Iterator[str]:
    for mistake in job.likely_mistakes:
        yield f"  Probably: {mistake.path}: {mistake.message}"
        yield f"    {mistake.remedy}"


def _failure(failure: FirstFailure, job: ClusterJob, local: LocalFacts) -> Iterator[str]:
    environment = local.environments.get(failure.replica.type, ReplicaEnvironment())
    table = (job.dialect or job.framework.dialects[0]).exit_codes
    known = explain_exit(failure.exit_code, failure.reason, table)
    policy = job.restart_policy_of(failure.replica)
    yield f"  {failure.replica} at {format_time(failure.at)}: {end_text(failure.exit_code, known, policy)}"
    if is_restart_forbidden(known, policy):
        yield f"  {restart_forbidden_text(job.helpful_restart_policy, job.restart_policy_field(failure.replica))}"
    lines = telling_excerpt(local.failure_output or failure.message.split("\n"), LOG_LINES)
    yield from (f"  {advice}" for advice in [crash_advice(known, lines)] if advice)
    yield from (f"  │ {terminal_text(short_line(line, LINE_LENGTH), colors=False)}" for line in lines)
    end = ReplicaEnd(
        lines=lines,
        reason=failure.reason,
        environment=environment,
        earlier=earlier_end(failure, job.status.restarts),
    )
    for cause in probable_causes(end):
        yield f"  Probably: {cause.summary}"
        yield f"    {cause.remedy}"
