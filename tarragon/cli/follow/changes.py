"""The changes between two progress reports of a job, one line each, for output that can't be redrawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tarragon.cli.jobview.progress import FAILED, RESTARTING, RUNNING, Progress, ReplicaProgress
from tarragon.cli.output.words import count
from tarragon.scheduling.api.decision import PREEMPTED

_MOST_SEPARATE = 8
"""If more replicas than this change in the same way at once, they share one line."""


def progress_changes(before: Progress | None, after: Progress) -> Iterator[str]:
    """Yields the changes, without time and job name, the job's end last. `before` is None for the first report."""
    is_new = before is None or (before.state, _why(before)) != (after.state, _why(after))
    state = [f"{after.state}: {_why(after)}" if _why(after) else after.state] if is_new else []
    if not after.is_final:
        yield from state
    yield from _members(before, after)
    if after.is_final:
        yield from state


def _members(before: Progress | None, after: Progress) -> Iterator[str]:
    known = {member.replica: member for member in before.replicas} if before is not None else {}
    moved: dict[str, list[ReplicaProgress]] = {}
    for member in after.replicas:
        words = replica_text(member)
        if words != replica_text(known.get(member.replica) or ReplicaProgress(replica=member.replica)):
            moved.setdefault(words, []).append(member)
    for words, members in moved.items():
        yield from _lines(words, members)


def replica_text(member: ReplicaProgress) -> str:
    """`Running, restart 1, as it failed with exit code 1`, `Restarting, exit code 137, restart 2`."""
    words = [member.state]
    if member.exit_code is not None and member.state in {FAILED, RESTARTING}:
        words.append(f"exit code {member.exit_code}")
    if member.restarts:
        words.append(f"restart {member.restarts}")
        if member.previous_end and member.state == RUNNING:
            words.append(f"as it {member.previous_end}")
    if member.reason and member.reason not in {"Completed", "Error"} and member.state != "Running":
        words.append(member.reason)
    return ", ".join(words)


def stall_reason(progress: Progress) -> str:
    """Returns what keeps an unfinished job from making progress; empty if nothing does."""
    if progress.wait is None:
        return progress.stall
    if is_preempted(progress):
        return f"preempted by another job ({progress.wait.message}); it is queued again"
    return progress.wait.message


def is_preempted(progress: Progress) -> bool:
    """Whether the job was preempted and waits to be admitted again."""
    return progress.wait is not None and progress.wait.code == PREEMPTED


def _why(progress: Progress) -> str:
    reason = stall_reason(progress)
    if reason:
        return reason
    return progress.message if progress.state in {"Failed", "Restarting", "Suspended"} else ""


def _lines(words: str, members: Sequence[ReplicaProgress]) -> Iterator[str]:
    if len(members) > _MOST_SEPARATE:
        yield f"{members[0].name} … {members[-1].name} ({count(len(members), 'replica')}): {words}"
        return
    for member in members:
        yield f"{member.name}: {words}"
