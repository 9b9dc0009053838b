"""Derives the signal of a TFJob from the states of its replicas, by a chain of rules. The first match applies.

The success of the chief takes precedence over failures seen in the same pass. Any permanent failure fails the job.
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
"""Exit codes of programs that were killed by an external signal."""

LAST_WORDS = 400
"""The number of characters of a failed replica's last line in the message of the condition."""


def judge(sight: Sight) -> Verdict:
    for rule in (succeeded, failed, lost, started, stalled):
        verdict = rule(sight)
        if verdict is not None:
            return verdict
    return Verdict(signal=None)


def succeeded(sight: Sight) -> Verdict | None:
    """The chief decides. Without one, worker 0 decides, or with AllWorkers all requested workers that can run."""
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
    return Verdict(signal=Signal.FAILED, message=f"{first}{others} {_cause(sight.members[first])}", failures=fatal)


def lost(sight: Sight) -> Verdict | None:
    """Replicas to replace whose end is not recorded yet. Once it is, the job is running as long as its chief is."""
    fresh = [replica for replica, member in sight.members.items() if _is_fresh_loss(sight, replica, member)]
    if not fresh:
        return None
    if restarts_together(sight.job):
        first = min(fresh, key=lambda replica: (sight.members[replica].fell_at, replica))
        message = f"all replicas are restarted together: {first} {_cause(sight.members[first])}"
        return Verdict(signal=Signal.LOST, message=message, failures=[first])
    first = min(fresh, key=lambda replica: _order(sight, replica))
    others = f", and {words(set(fresh) - {first})}," if len(fresh) > 1 else ""
    message = f"{first}{others} is replaced: it {_cause(sight.members[first])}"
    return Verdict(signal=Signal.LOST, message=message, failures=sorted(fresh))


def started(sight: Sight) -> Verdict | None:
    """The chief is running; without one, any worker is."""
    job = sight.job
    for replica, member in sight.members.items():
        counts = replica == job.chief if job.has_chief else replica.type is ReplicaType.WORKER
        if counts and member.is_active:
            return Verdict(signal=Signal.STARTED, message=f"{job.kind} {job.key.name} is running")
    return None


def stalled(sight: Sight) -> Verdict | None:
    """No replica that decides is running, and none has ended: a pod was deleted or is being deleted.

    This does not apply once the chief is done: with AllWorkers, worker 0 may be done before others start.
    """
    if sight.status.phase is not Phase.RUNNING or sight.job.chief is None or is_done(sight, sight.job.chief):
        return None
    return Verdict(signal=Signal.LOST, message=f"{sight.job.chief} is restarted")


def is_done(sight: Sight, replica: Replica) -> bool:
    member = sight.members.get(replica)
    return replica in sight.status.finished or (member is not None and member.fate is Fate.DONE)


def _all_workers_are_done(sight: Sight) -> bool:
    """Whether all workers have succeeded.

    An elastic job may lose workers before they are done and get them back later. There, all existing workers must be
    done, and as many as are requested, whatever their indexes.
    """
    elastic, wish = sight.job.elastic, sight.job.wished().get(ReplicaType.WORKER, 0)
    if elastic is None or is_elastic_by_restart(sight.job):
        size = min(sight.size.get(ReplicaType.WORKER, 0), wish)
        return all(is_done(sight, Replica(ReplicaType.WORKER, index)) for index in range(size))
    existing = {replica for replica in sight.members if replica.type is ReplicaType.WORKER}
    known = existing | {replica for replica in sight.status.finished if replica.type is ReplicaType.WORKER}
    done = {replica for replica in known if is_done(sight, replica)}
    return existing <= done and len(done) >= min(max(wish, elastic.minimum), elastic.maximum)


def _fatal(sight: Sight) -> Iterator[Replica]:
    """Replicas whose failure fails the job. With enableDynamicWorker, workers that do not decide may fail."""
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
    """When a gang that restarts together lost its first replica. Later failures are consequences of that."""
    if not restarts_together(sight.job):
        return None
    return min((member.fell_at for member in sight.members.values() if member.fate is Fate.REPLACED), default=None)


def _is_fresh_loss(sight: Sight, replica: Replica, member: Member) -> bool:
    if member.fate is not Fate.REPLACED or member.was_told_to_go:
        return False
    record = sight.status.restarts.get(replica)
    return record is None or record.uid != member.pod.metadata.uid or not record.has_ended


def _order(sight: Sight, replica: Replica) -> tuple[datetime, Replica]:
    """Sorts by the time of the end, so that the first failure comes first."""
    ending = sight.members[replica].ending
    at = ending.at if ending is not None else None
    return at or datetime.max.replace(tzinfo=UTC), replica


def _cause(member: Member) -> str:
    ending = member.ending
    if ending is None:
        return "has ended"
    if ending.end is End.DISRUPTED:
        return f"was disrupted ({ending.reason})"
    summary = _failure(ending)
    if ending.exit_code in FROM_OUTSIDE:
        return summary  # The last output of a killed program does not explain its end.
    lines = [shown for line in ending.message.splitlines() if (shown := line.rpartition("\r")[2].strip())]
    return f"{summary}: {lines[-1][-LAST_WORDS:]}" if lines else summary


def _failure(ending: Ending) -> str:
    if ending.exit_code is None:
        return f"failed ({ending.reason or 'no exit code'})"
    if ending.exit_code in FROM_OUTSIDE and ending.reason in {"", "Error"}:
        return f"was killed ({FROM_OUTSIDE[ending.exit_code]}, exit code {ending.exit_code})"
    # Almost every failure has the reason Error, which explains nothing.
    why = f" ({ending.reason})" if ending.reason not in {"", "Error"} else ""
    return f"failed with exit code {ending.exit_code}{why}"
