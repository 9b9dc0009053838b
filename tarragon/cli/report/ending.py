"""What is said when a job has ended: how long it took and what came of it, or who failed first, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.cli.jobview.causes import End, causes
from tarragon.cli.jobview.exits import NEVER_AGAIN, Meaning, ended, meaning, never_again
from tarragon.cli.jobview.progress import FAILED, STARTING, WAITING, Member, Progress
from tarragon.cli.output.log_lines import last, shown
from tarragon.cli.output.style import STATES, Paint, plain
from tarragon.cli.output.words import count, elapsed, table
from tarragon.cli.report.numbers import numbers
from tarragon.job.exitcode import ExitCodeTable
from tarragon.job.model import Replica, ReplicaType, RestartPolicy
from tarragon.job.status import FirstFailure

LAST_LINES = 20
MOST_ROWS = 16
"""Replicas in the table of exit codes; beyond it, those that ended alike share a row."""
SUSPICIOUSLY_SHORT = 30.0
"""Seconds. A training that ends well before this and said nothing at all has probably not trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """`took`: seconds from the job's creation to its end; `ran`: those of each replica's last run, as far as known.

    `tails`: the last lines of each replica's log; `said`: how many it wrote, of those whose logs were read.
    `deciding`: whose end was the job's. `environment`, `install`: of the replicas, as `causes.End` has them.
    """

    progress: Progress
    took: float
    ran: Mapping[Replica, float] = field(default_factory=dict)
    first_failure: FirstFailure | None = None
    deciding: Sequence[Replica] = ()
    tails: Mapping[Replica, Sequence[str]] = field(default_factory=dict)
    said: Mapping[Replica, int] = field(default_factory=dict)
    exit_codes: ExitCodeTable
    policies: Mapping[ReplicaType, RestartPolicy] = field(default_factory=dict)
    environment: str = "its environment"
    install: str = "python -m pip install"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Whoever failed first, from the job's status or, where that says nothing, from the pods."""

    replica: Replica
    exit_code: int | None
    reason: str
    message: str


def succeeded(end: Ending, paint: Paint) -> Iterator[str]:
    """`Succeeded  digits in 14.2 s  accuracy 0.957`, and a doubt where nobody said a word."""
    lines = [line for replica in end.deciding for line in end.tails.get(replica, ())]
    told = "".join(f"  {name} {value}" for name, value in numbers(lines))
    yield f"{paint('Succeeded', STATES['Succeeded'])}  {end.progress.key.name} in {elapsed(end.took)}{told}"
    seconds = silent_seconds(end)
    if seconds is not None:
        who = end.deciding[0] if len(end.deciding) == 1 else "every replica"
        yield f"{paint('warning', 'yellow')}: {who} ended after {elapsed(seconds)} with no output; did it train?"


def silent_seconds(end: Ending) -> float | None:
    """How long the deciding replicas ran, if none of them wrote a line and that was suspiciously short; else None."""
    members = [member for member in end.progress.members if member.replica in end.deciding]
    ran = [seconds for member in members if (seconds := seconds_of(member, end)) is not None]
    is_silent = bool(members) and all(end.said.get(member.replica) == 0 for member in members)
    return max(ran) if is_silent and ran and max(ran) < SUSPICIOUSLY_SHORT else None


def failed(end: Ending, paint: Paint) -> Iterator[str]:
    """Who was first, what its exit code means, its last lines, the usual causes, and how all the others ended."""
    failure = first_failure(end)
    head = f"{paint('Failed', STATES['Failed'])}  {end.progress.key.name} after {elapsed(end.took)}"
    yield head if failure is not None or not end.progress.message else f"{head}: {end.progress.message}"
    if failure is not None:
        yield ""
        yield from _about(failure, end, paint)
    if any(member.pod or member.exit_code is not None for member in end.progress.members):
        yield ""
        yield from exit_codes(end)


def first_failure(end: Ending) -> Failure | None:
    """The one that the status names, else the failed replica that ended earliest."""
    told = end.first_failure
    if told is not None:
        return Failure(replica=told.replica, exit_code=told.exit_code, reason=told.reason, message=told.message)
    ended = [member for member in end.progress.members if member.state == FAILED]
    earliest = min(ended, key=_ended_at, default=None)
    if earliest is None:
        return None
    return Failure(
        replica=earliest.replica, exit_code=earliest.exit_code, reason=earliest.reason, message=earliest.message
    )


def why(failure: Failure, end: Ending) -> Meaning:
    return meaning(failure.exit_code, failure.reason, end.exit_codes)


def seconds_of(member: Member, end: Ending) -> float | None:
    return end.ran.get(member.replica, member.seconds)


def exit_codes(end: Ending) -> list[str]:
    """Of every replica its state, exit code, restarts and time; of hundreds, one row for all that ended alike."""
    members = end.progress.members
    groups: dict[tuple[str, ...], list[Member]] = {}
    for member in members:
        alike = (_state(member), _code(member), str(member.restarts))
        key = alike if len(members) > MOST_ROWS else (*alike, member.name)
        groups.setdefault(key, []).append(member)
    rows = [(_names(group), *key[:3], _ran(group, end)) for key, group in groups.items()]
    return table(("REPLICA", "STATE", "EXIT", "RESTARTS", "RAN"), rows)


def _about(failure: Failure, end: Ending, paint: Paint) -> Iterator[str]:
    known = why(failure, end)
    code = ended(failure.exit_code)
    others = len({member.replica for member in end.progress.members if member.state == FAILED} - {failure.replica})
    rank = " failed first" if others else " failed"
    yield f"{paint(str(failure.replica), 'bold')}{rank}: {code}, {known.kind}: {known.words}"
    if never_again(known, end.policies.get(failure.replica.type, RestartPolicy.EXIT_CODE)):
        yield NEVER_AGAIN
    raw = last(end.tails.get(failure.replica) or failure.message.split("\n"), LAST_LINES)
    yield from (f"  {paint('│', 'dim')} {shown(line, colors=paint is not plain)}" for line in raw)
    tail = [shown(line, colors=False) for line in raw]
    known_end = End(
        lines=tail,
        reason=failure.reason,
        message=failure.message,
        environment=end.environment,
        install=end.install,
    )
    for cause in causes(known_end):
        yield ""
        yield f"{paint('Probably', 'yellow')}: {cause.what}"
        yield f"  {cause.remedy}"


def _ended_at(member: Member) -> float:
    return member.finished.timestamp() if member.finished is not None else float("inf")


def _state(member: Member) -> str:
    """What keeps it from starting, where something does: it is not about to start."""
    return member.reason if member.state in {STARTING, WAITING} and member.reason else member.state


def _code(member: Member) -> str:
    return "-" if member.exit_code is None else str(member.exit_code)


def _names(group: Sequence[Member]) -> str:
    if len(group) == 1:
        return group[0].name
    return f"{group[0].name} … {group[-1].name} ({count(len(group), 'replica')})"


def _ran(group: Sequence[Member], end: Ending) -> str:
    times = [seconds for member in group if (seconds := seconds_of(member, end)) is not None]
    if not times:
        return "-"
    shortest, longest = elapsed(min(times)), elapsed(max(times))
    return shortest if shortest == longest else f"{shortest} to {longest}"
