"""What the replicas say about a TFJob: a chain of small rules, the first that has something to say is right.

The success of whoever decides wins over failures seen in the same pass. A failure for good of anybody fails the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from tarragon.frameworks.plugin import Sight, Verdict
from tarragon.job.annotations import is_elastic_by_restart, restarts_together
from tarragon.job.indexes import words
from tarragon.job.member import End, Ending, Fate, Member
from tarragon.job.model import Replica, ReplicaType, SuccessPolicy
from tarragon.job.phase import Phase, Signal

FROM_OUTSIDE: Mapping[int, str] = {130: "SIGINT", 137: "SIGKILL", 143: "SIGTERM"}
"""Deaths that a program does not bring about itself."""

LAST_WORDS = 400
"""Characters of a failed replica's last line that the condition repeats."""


def judge(sight: Sight) -> Verdict:
    for rule in (succeeded, failed, lost, started, stalled):
        verdict = rule(sight)
        if verdict is not None:
            return verdict
    return Verdict(signal=None)


def succeeded(sight: Sight) -> Verdict | None:
    """The chief decides. Without one worker 0 does, or all workers that were wished for and can be had."""
    job = sight.job
    if job.chief is None:
        return None
    if job.has_chief or job.success_policy is SuccessPolicy.WORKER_ZERO:
        if not is_done(sight, job.chief):
            return None
        return Verdict(signal=Signal.SUCCEEDED, message=f"{job.chief} has succeeded")
    if _all_workers_are_done(sight):
        return Verdict(signal=Signal.SUCCEEDED, message="all workers have succeeded")
    return None


def failed(sight: Sight) -> Verdict | None:
    fatal = sorted(_fatal(sight), key=lambda replica: _order(sight, replica))
    if not fatal:
        return None
    first = fatal[0]
    others = f" (and {words(fatal[1:])})" if len(fatal) > 1 else ""
    return Verdict(signal=Signal.FAILED, message=f"{first}{others} {_words(sight.members[first])}", failures=fatal)


def lost(sight: Sight) -> Verdict | None:
    """Ends that are not on record yet; once they are, the job runs as long as its chief does."""
    fresh = [replica for replica, member in sight.members.items() if _is_fresh_loss(sight, replica, member)]
    if not fresh:
        return None
    if restarts_together(sight.job):
        first = min(fresh, key=lambda replica: (sight.members[replica].fell_at, replica))
        message = f"all replicas are started again together: {first} {_words(sight.members[first])}"
        return Verdict(signal=Signal.LOST, message=message, failures=[first])
    first = min(fresh, key=lambda replica: _order(sight, replica))
    others = f", and {words(set(fresh) - {first})}," if len(fresh) > 1 else ""
    message = f"{first}{others} is replaced: it {_words(sight.members[first])}"
    return Verdict(signal=Signal.LOST, message=message, failures=sorted(fresh))


def started(sight: Sight) -> Verdict | None:
    """The chief runs; without one, any worker."""
    job = sight.job
    for replica, member in sight.members.items():
        counts = replica == job.chief if job.has_chief else replica.type is ReplicaType.WORKER
        if counts and member.is_active:
            return Verdict(signal=Signal.STARTED, message=f"{job.kind} {job.key.name} is running")
    return None


def stalled(sight: Sight) -> Verdict | None:
    """Nobody who counts runs any more, and nobody has ended: a pod vanished, or is on its way out.

    Where all workers decide, worker 0 may be through while others are yet to begin.
    """
    if sight.status.phase is not Phase.RUNNING or sight.job.chief is None or is_done(sight, sight.job.chief):
        return None
    return Verdict(signal=Signal.LOST, message=f"{sight.job.chief} is started again")


def is_done(sight: Sight, replica: Replica) -> bool:
    member = sight.members.get(replica)
    return replica in sight.status.finished or (member is not None and member.fate is Fate.DONE)


def _all_workers_are_done(sight: Sight) -> bool:
    """An elastic job gets back those that it had to give away before they were done. As many as are wished for have to
    be, whichever they are, and all that are there.
    """
    elastic, wish = sight.job.elastic, sight.job.wished().get(ReplicaType.WORKER, 0)
    if elastic is None or is_elastic_by_restart(sight.job):
        size = min(sight.size.get(ReplicaType.WORKER, 0), wish)
        return all(is_done(sight, Replica(ReplicaType.WORKER, index)) for index in range(size))
    there = {replica for replica in sight.members if replica.type is ReplicaType.WORKER}
    known = there | {replica for replica in sight.status.finished if replica.type is ReplicaType.WORKER}
    done = {replica for replica in known if is_done(sight, replica)}
    return there <= done and len(done) >= min(max(wish, elastic.minimum), elastic.maximum)


def _fatal(sight: Sight) -> Iterator[Replica]:
    """Under enableDynamicWorker workers may come to grief, but for those that decide."""
    job = sight.job
    all_decide = job.success_policy is SuccessPolicy.ALL_WORKERS and not job.has_chief
    may_fail = job.sparse_cluster and not all_decide
    restart = _first_loss(sight)
    for replica, member in sight.members.items():
        is_tolerated = may_fail and replica.type is ReplicaType.WORKER and replica != job.chief
        is_consequence = restart is not None and restart <= member.fell_at
        if member.fate is Fate.FATAL and not is_tolerated and not is_consequence:
            yield replica


def _first_loss(sight: Sight) -> datetime | None:
    """When a gang that restarts as one lost the first of its replicas: who falls then falls because of that."""
    if not restarts_together(sight.job):
        return None
    return min((member.fell_at for member in sight.members.values() if member.fate is Fate.REPLACED), default=None)


def _is_fresh_loss(sight: Sight, replica: Replica, member: Member) -> bool:
    if member.fate is not Fate.REPLACED or member.was_told_to_go:
        return False
    record = sight.status.restarts.get(replica)
    return record is None or record.uid != member.pod.metadata.uid or not record.has_ended


def _order(sight: Sight, replica: Replica) -> tuple[datetime, Replica]:
    """By the time of the end: the first to fall is seldom the last to be seen."""
    ending = sight.members[replica].ending
    at = ending.at if ending is not None else None
    return at or datetime.max.replace(tzinfo=UTC), replica


def _words(member: Member) -> str:
    ending = member.ending
    if ending is None:
        return "has ended"
    if ending.end is End.DISRUPTED:
        return f"was disrupted ({ending.reason})"
    said = _said(ending)
    if ending.exit_code in FROM_OUTSIDE:
        return said  # What it said last has nothing to do with who killed it.
    lines = [shown for line in ending.message.splitlines() if (shown := line.rpartition("\r")[2].strip())]
    return f"{said}: {lines[-1][-LAST_WORDS:]}" if lines else said


def _said(ending: Ending) -> str:
    if ending.exit_code is None:
        return f"failed ({ending.reason or 'no exit code'})"
    if ending.exit_code in FROM_OUTSIDE and ending.reason in {"", "Error"}:
        return f"was killed ({FROM_OUTSIDE[ending.exit_code]}, exit code {ending.exit_code})"
    # Kubernetes' reason for almost every failure is Error, which says nothing.
    why = f" ({ending.reason})" if ending.reason not in {"", "Error"} else ""
    return f"failed with exit code {ending.exit_code}{why}"
