"""The report on a finished job: its duration and metrics, or which replica failed first, why, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.base.errors import Problem
from tarragon.cli.jobview.causes import ReplicaEnd, ReplicaEnvironment, probable_causes
from tarragon.cli.jobview.exits import (
    ExitMeaning,
    crash_advice,
    end_text,
    explain_exit,
    is_restart_forbidden,
    restart_forbidden_text,
)
from tarragon.cli.jobview.progress import FAILED, STARTING, WAITING, Progress, ReplicaProgress
from tarragon.cli.jobview.restarts import earlier_end
from tarragon.cli.output.log_lines import terminal_text
from tarragon.cli.output.style import STATES, Paint, uncolored
from tarragon.cli.output.words import count, duration_text, table
from tarragon.cli.report.numbers import final_metrics, reported_metrics
from tarragon.job.excerpt import LINE_LENGTH, telling_excerpt
from tarragon.job.exit_codes import ExitCodeTable
from tarragon.job.lost_peer import has_lost_peer
from tarragon.job.model import Replica, ReplicaType, RestartPolicy
from tarragon.job.progress import Source
from tarragon.job.status import FirstFailure, RestartRecord
from tarragon.job.tracebacks import short_line

LAST_LINES = 20
MAX_ROWS = 16
"""If the job has more replicas than this, those that ended alike share a row in the table of exit codes."""
NOTABLE_WAIT = 5.0
"""Seconds. A job that waited for less before it was admitted is said to have run for the whole time."""
SUSPICIOUSLY_SHORT = 30.0
"""Seconds. A job that succeeds in less time without any output has probably not trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedJob:
    """What is known of a finished job.

    `seconds` is the seconds for which the job was followed to its end, `waited` those of them before it was admitted,
    `run_seconds` those of each replica's last run, if known. `tails` has the last log lines of each replica whose log
    was read, `line_counts` their number of lines. `deciding_replicas` are the replicas that decide the job's result.
    `environments` are those in which they ran.
    """

    progress: Progress
    seconds: float
    waited: float = 0.0
    run_seconds: Mapping[Replica, float] = field(default_factory=dict)
    first_failure: FirstFailure | None = None
    deciding_replicas: Sequence[Replica] = ()
    tails: Mapping[Replica, Sequence[str]] = field(default_factory=dict)
    line_counts: Mapping[Replica, int] = field(default_factory=dict)
    exit_codes: ExitCodeTable
    policy_of: Callable[[Replica], RestartPolicy | None] = lambda _: None
    helpful_restart_policy: RestartPolicy = RestartPolicy.ON_FAILURE
    restart_policy_field: Callable[[Replica], str] = lambda _: ""
    restarts: Mapping[Replica, RestartRecord] = field(default_factory=dict)
    likely_mistakes: Sequence[Problem] = ()
    """Mistakes in the manifest that the job's status makes likely."""
    environments: Mapping[ReplicaType, ReplicaEnvironment] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFailure:
    """The first failed replica, from the job's status or, if that does not name it, from the pods."""

    replica: Replica
    exit_code: int | None
    reason: str
    message: str


def success_report(end: FinishedJob, paint: Paint) -> Iterator[str]:
    """Yields `Succeeded  digits in 14.2 s  accuracy 0.957`, and a warning if there was no output."""
    lines = [line for replica in end.deciding_replicas for line in end.tails.get(replica, ())]
    found = final_metrics(lines) or reported_metrics(_reported(end))
    metrics = "".join(f"  {name} {value}" for name, value in found)
    yield f"{paint('Succeeded', STATES['Succeeded'])}  {end.progress.key.name} in {_time(end)}{metrics}"
    seconds = silent_seconds(end)
    if seconds is not None:
        who = end.deciding_replicas[0] if len(end.deciding_replicas) == 1 else "every replica"
        yield f"{paint('warning', 'yellow')}: {who} ended after {duration_text(seconds)} with no output; did it train?"


def _time(end: FinishedJob) -> str:
    """`14.2 s`, or `14.2 s, after waiting 27.0 s` if the job waited notably."""
    if end.waited < NOTABLE_WAIT:
        return duration_text(end.seconds)
    return f"{duration_text(end.seconds - end.waited)}, after waiting {duration_text(end.waited)}"


def silent_seconds(end: FinishedJob) -> float | None:
    """Returns how long the deciding replicas ran if that was suspiciously short, without output or report; or None."""
    members = [member for member in end.progress.replicas if member.replica in end.deciding_replicas]
    ran = [seconds for member in members if (seconds := seconds_of(member, end)) is not None]
    is_silent = bool(members) and all(end.line_counts.get(member.replica) == 0 for member in members)
    return max(ran) if is_silent and ran and max(ran) < SUSPICIOUSLY_SHORT and end.progress.training is None else None


def _reported(end: FinishedJob) -> Mapping[str, str]:
    """Returns the metrics that the program itself reported. What the operator read in the log may not be its end."""
    training = end.progress.training
    return training.metrics if training is not None and training.source is Source.REPORT else {}


def failure_report(end: FinishedJob, paint: Paint) -> Iterator[str]:
    """Yields the first failure with its exit code, last log lines and probable causes, then how all replicas ended."""
    failure = first_failure(end)
    head = f"{paint('Failed', STATES['Failed'])}  {end.progress.key.name} after {duration_text(end.seconds)}"
    yield head if failure is not None or not end.progress.message else f"{head}: {end.progress.message}"
    if failure is not None:
        yield ""
        yield from _about(failure, end, paint)
    if any(member.pod or member.exit_code is not None for member in end.progress.replicas):
        yield ""
        yield from exit_table(end)


def first_failure(end: FinishedJob) -> ReplicaFailure | None:
    """Returns the failure that the job's status names, else that of the failed replica that ended first."""
    recorded = end.first_failure
    if recorded is not None:
        return ReplicaFailure(
            replica=recorded.replica, exit_code=recorded.exit_code, reason=recorded.reason, message=recorded.message
        )
    ended = [member for member in end.progress.replicas if member.state == FAILED]
    earliest = min(ended, key=_ended_at, default=None)
    if earliest is None:
        return None
    return ReplicaFailure(
        replica=earliest.replica, exit_code=earliest.exit_code, reason=earliest.reason, message=earliest.message
    )


def explain_failure(failure: ReplicaFailure, end: FinishedJob) -> ExitMeaning:
    return explain_exit(failure.exit_code, failure.reason, end.exit_codes)


def seconds_of(member: ReplicaProgress, end: FinishedJob) -> float | None:
    return end.run_seconds.get(member.replica, member.seconds)


def exit_table(end: FinishedJob) -> list[str]:
    """Returns a table of how every replica ended. In large jobs, replicas that ended alike share a row."""
    members = end.progress.replicas
    groups: dict[tuple[str, ...], list[ReplicaProgress]] = {}
    for member in members:
        alike = (_state(member), member.exit_cell, str(member.restarts))
        key = alike if len(members) > MAX_ROWS else (*alike, member.name)
        groups.setdefault(key, []).append(member)
    rows = [(_names(group), *key[:3], _ran(group, end)) for key, group in groups.items()]
    return table(("REPLICA", "STATE", "EXIT", "RESTARTS", "RAN"), rows)


def _about(failure: ReplicaFailure, end: FinishedJob, paint: Paint) -> Iterator[str]:
    explanation = explain_failure(failure, end)
    policy = end.policy_of(failure.replica)
    name = paint(str(failure.replica), "bold")
    yield f"{name}{_rank(failure, end)}: {end_text(failure.exit_code, explanation, policy)}"
    if is_restart_forbidden(explanation, policy):
        yield restart_forbidden_text(end.helpful_restart_policy, end.restart_policy_field(failure.replica))
    raw = telling_excerpt([*(end.tails.get(failure.replica) or failure.message.split("\n"))], LAST_LINES)
    yield from filter(None, [crash_advice(explanation, raw)])
    for line in raw:
        shown = terminal_text(short_line(line, LINE_LENGTH), colors=paint is not uncolored)
        yield f"  {paint('│', 'dim')} {shown}"
    tail = [terminal_text(line, colors=False) for line in raw]
    replica_end = ReplicaEnd(
        lines=tail,
        reason=failure.reason,
        message=failure.message,
        environment=end.environments.get(failure.replica.type, ReplicaEnvironment()),
        earlier=earlier_end(end.first_failure, end.restarts) if end.first_failure is not None else "",
    )
    mistakes = ((f"{mistake.path}: {mistake.message}", mistake.remedy) for mistake in end.likely_mistakes)
    causes = ((cause.summary, cause.remedy) for cause in probable_causes(replica_end))
    for summary, remedy in (*mistakes, *causes):
        yield ""
        yield f"{paint('Probably', 'yellow')}: {summary}"
        yield f"  {remedy}"


def _rank(failure: ReplicaFailure, end: FinishedJob) -> str:
    """` failed first`, unless which one was first is not known, because others ended alike in the same second."""
    failed = {member.replica: member for member in end.progress.replicas if member.state == FAILED}
    own = failed.pop(failure.replica, None)
    if own is None or own.finished is None:
        return " failed first" if failed else " failed"
    alike = [member.name for member in failed.values() if _way_of_failing(member) == _way_of_failing(own)]
    if not alike:
        return " failed first" if failed else " failed"
    names = alike[0] if len(alike) == 1 else f"{len(alike)} others"
    return f" failed, and {names} in the same second"


def _way_of_failing(member: ReplicaProgress) -> tuple[object, ...]:
    return member.finished, member.exit_code, member.reason, has_lost_peer(member.message)


def _ended_at(member: ReplicaProgress) -> float:
    return member.finished.timestamp() if member.finished is not None else float("inf")


def _state(member: ReplicaProgress) -> str:
    """Returns the reason that keeps a replica from starting, if there is one, else its state."""
    return member.reason if member.state in {STARTING, WAITING} and member.reason else member.state


def _names(group: Sequence[ReplicaProgress]) -> str:
    if len(group) == 1:
        return group[0].name
    return f"{group[0].name} … {group[-1].name} ({count(len(group), 'replica')})"


def _ran(group: Sequence[ReplicaProgress], end: FinishedJob) -> str:
    times = [seconds for member in group if (seconds := seconds_of(member, end)) is not None]
    if not times:
        return "-"
    shortest, longest = duration_text(min(times)), duration_text(max(times))
    return shortest if shortest == longest else f"{shortest} to {longest}"
