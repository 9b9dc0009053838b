"""What has changed between two moments of a job, one line a change: what is shown where nothing can be drawn over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tarragon.cli.jobview.progress import FAILED, RESTARTING, Member, Progress
from tarragon.cli.output.words import count
from tarragon.scheduling.api.decision import PREEMPTED

_MOST_TOGETHER = 8
"""More replicas than this that do the same at once share one line."""


def changes(before: Progress | None, after: Progress) -> Iterator[str]:
    """Lines without time and without the job's name, its end last; the first call has no `before`."""
    is_new = before is None or (before.state, _why(before)) != (after.state, _why(after))
    state = [f"{after.state}: {_why(after)}" if _why(after) else after.state] if is_new else []
    if not after.is_final:
        yield from state
    yield from _members(before, after)
    if after.is_final:
        yield from state


def _members(before: Progress | None, after: Progress) -> Iterator[str]:
    known = {member.replica: member for member in before.members} if before is not None else {}
    moved: dict[str, list[Member]] = {}
    for member in after.members:
        words = described(member)
        if words != described(known.get(member.replica) or Member(replica=member.replica)):
            moved.setdefault(words, []).append(member)
    for words, members in moved.items():
        yield from _lines(words, members)


def described(member: Member) -> str:
    """`Running`, `Failed, exit code 1`, `Restarting, exit code 137, restart 2`."""
    words = [member.state]
    if member.exit_code is not None and member.state in {FAILED, RESTARTING}:
        words.append(f"exit code {member.exit_code}")
    if member.restarts:
        words.append(f"restart {member.restarts}")
    if member.reason and member.reason not in {"Completed", "Error"} and member.state != "Running":
        words.append(member.reason)
    return ", ".join(words)


def standstill(progress: Progress) -> str:
    """What keeps a job that has not ended from going on; empty where nothing does."""
    if progress.wait is None:
        return progress.hindrance
    if is_displaced(progress):
        return f"its places went to another job ({progress.wait.message}); it queues for new ones"
    return progress.wait.message


def is_displaced(progress: Progress) -> bool:
    """Whether it has just lost its places to a job that is more urgent."""
    return progress.wait is not None and progress.wait.code == PREEMPTED


def _why(progress: Progress) -> str:
    stopped = standstill(progress)
    if stopped:
        return stopped
    return progress.message if progress.state in {"Failed", "Restarting", "Suspended"} else ""


def _lines(words: str, members: Sequence[Member]) -> Iterator[str]:
    if len(members) > _MOST_TOGETHER:
        yield f"{members[0].name} … {members[-1].name} ({count(len(members), 'replica')}): {words}"
        return
    for member in members:
        yield f"{member.name}: {words}"
