"""Derives the signal of a job from the states of its replicas, by a chain of rules. The first match applies.

The success of the chief takes precedence over failures seen in the same pass. Any permanent failure fails the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import takewhile

from tarragon.base.time_arithmetic import MAX_TIME, add_seconds
from tarragon.frameworks.plugin import JobObservation, Verdict
from tarragon.job.annotations import is_elastic_by_restart, restarts_as_gang
from tarragon.job.exit_codes import CRASH_SIGNALS
from tarragon.job.lost_peer import has_lost_peer
from tarragon.job.model import Replica, ReplicaType, SuccessPolicy
from tarragon.job.phase import JobSignal, Phase
from tarragon.job.replica_ranges import name_replicas
from tarragon.job.replica_state import PodOutcome, PodTermination, ReplicaAction, ReplicaState
from tarragon.job.termination_message import telling_line

KILL_SIGNALS: Mapping[int, str] = {130: "SIGINT", 137: "SIGKILL", 143: "SIGTERM"}
"""Exit codes of programs that were killed by an external signal."""

TIME_PRECISION = 1.0
"""Seconds by which ends have to differ to tell which one was first: pods have them in whole seconds."""

MAX_LAST_LINE_LENGTH = 400
"""The number of characters of a failed replica's last line in the message of the condition."""


def evaluate(observation: JobObservation) -> Verdict:
    for rule in (succeeded, failed, lost, started, stalled):
        verdict = rule(observation)
        if verdict is not None:
            return verdict
    return Verdict(signal=None)


def succeeded(observation: JobObservation) -> Verdict | None:
    """The chief decides. Without one, worker 0 decides, or with AllWorkers all requested workers that can run."""
    job = observation.job
    if job.chief is None:
        return None
    if job.has_chief or job.success_policy is SuccessPolicy.WORKER_ZERO:
        if not is_done(observation, job.chief):
            return None
        return Verdict(signal=JobSignal.SUCCEEDED, message=f"{job.chief} has succeeded")
    if _all_have_succeeded(observation, job.chief.type):
        return Verdict(signal=JobSignal.SUCCEEDED, message=f"all {job.chief.type.lower()}s have succeeded")
    return None


def failed(observation: JobObservation) -> Verdict | None:
    fatal = _causes_first(observation, _fatal(observation))
    if not fatal:
        return None
    first = fatal[0]
    others = f" (and {name_replicas(fatal[1:])})" if len(fatal) > 1 else ""
    return Verdict(
        signal=JobSignal.FAILED,
        message=f"{first}{others} {_cause(observation.replica_states[first])}",
        failed_replicas=fatal,
    )


def lost(observation: JobObservation) -> Verdict | None:
    """Replicas to replace whose end is not recorded yet. Once it is, the job is running as long as its chief is.

    A pod that its kubelet rejected is replaced too, but its replica has not started.
    """
    fresh = [
        replica
        for replica, member in observation.replica_states.items()
        if _is_fresh_loss(observation, replica, member)
    ]
    if not fresh:
        return None
    if restarts_as_gang(observation.job):
        first = min(fresh, key=lambda replica: (observation.replica_states[replica].ended_at, replica))
        message = f"all replicas are restarted together: {first} {_cause(observation.replica_states[first])}"
        return Verdict(signal=JobSignal.REPLICA_LOST, message=message, failed_replicas=[first])
    first = _causes_first(observation, fresh)[0]
    others = f", and {name_replicas(set(fresh) - {first})}," if len(fresh) > 1 else ""
    message = f"{first}{others} is replaced: it {_cause(observation.replica_states[first])}"
    return Verdict(signal=JobSignal.REPLICA_LOST, message=message, failed_replicas=sorted(fresh))


def started(observation: JobObservation) -> Verdict | None:
    """The chief is running; without one, any worker is."""
    job = observation.job
    for replica, member in observation.replica_states.items():
        counts = replica == job.chief if job.has_chief else job.chief is not None and replica.type == job.chief.type
        if counts and member.is_pod_running:
            return Verdict(signal=JobSignal.STARTED, message=f"{job.kind} {job.key.name} is running")
    return None


def stalled(observation: JobObservation) -> Verdict | None:
    """No replica that decides is running, and none has ended: a pod was deleted or is being deleted.

    This does not apply once the chief is done: with AllWorkers, worker 0 may be done before others start. Nor does it
    while the chief's end is not judged yet.
    """
    chief = observation.job.chief
    if observation.status.phase is not Phase.RUNNING or chief is None or is_done(observation, chief):
        return None
    member = observation.replica_states.get(chief)
    if member is not None and member.is_active and member.pod.is_finished:
        return None
    return Verdict(signal=JobSignal.REPLICA_LOST, message=f"{chief} is restarted")


def is_done(observation: JobObservation, replica: Replica) -> bool:
    member = observation.replica_states.get(replica)
    return replica in observation.status.succeeded_replicas or (
        member is not None and member.action is ReplicaAction.COMPLETE
    )


def _all_have_succeeded(observation: JobObservation, kind: ReplicaType) -> bool:
    """Whether all replicas of this type have succeeded.

    An elastic job may lose workers before they are done and get them back later. There, all existing workers must be
    done, and as many as are requested, whatever their indexes.
    """
    elastic, requested = observation.job.elastic_policy, observation.job.requested_size().get(kind, 0)
    if elastic is None or is_elastic_by_restart(observation.job):
        size = min(observation.size.get(kind, 0), requested)
        return all(is_done(observation, Replica(kind, index)) for index in range(size))
    existing = {replica for replica in observation.replica_states if replica.type == kind}
    known = existing | {replica for replica in observation.status.succeeded_replicas if replica.type == kind}
    done = {replica for replica in known if is_done(observation, replica)}
    return existing <= done and len(done) >= min(max(requested, elastic.min_replicas), elastic.max_replicas)


def _fatal(observation: JobObservation) -> Iterator[Replica]:
    """Replicas whose failure fails the job."""
    job = observation.job
    all_decide = job.success_policy is SuccessPolicy.ALL_WORKERS and not job.has_chief
    may_fail = {group.type for group in job.replica_specs if group.may_fail and not all_decide}
    restart = _first_loss(observation)
    for replica, member in observation.replica_states.items():
        is_tolerated = replica.type in may_fail and replica != job.chief
        is_consequence = restart is not None and restart <= member.ended_at
        if member.action is ReplicaAction.FAIL_JOB and not is_tolerated and not is_consequence:
            yield replica


def _first_loss(observation: JobObservation) -> datetime | None:
    """When a gang that restarts together lost its first replica. Later failures are consequences of that."""
    if not restarts_as_gang(observation.job):
        return None
    return min(
        (member.ended_at for member in observation.replica_states.values() if member.action is ReplicaAction.REPLACE),
        default=None,
    )


def _is_fresh_loss(observation: JobObservation, replica: Replica, member: ReplicaState) -> bool:
    if member.action is not ReplicaAction.REPLACE or member.is_leaving or member.is_rejected_by_kubelet:
        return False
    record = observation.status.restarts.get(replica)
    return record is None or record.pod_uid != member.pod.metadata.uid or not record.is_pod_end_counted


def _causes_first(observation: JobObservation, replicas: Iterable[Replica]) -> Sequence[Replica]:
    """Sorts by the time of the end, so that the first failure comes first.

    Which of two was first is not known if they ended within `TIME_PRECISION`: usually all replicas end at once when one
    fails. Of those, the first one counts that did not only lose a connection.
    """
    in_time = sorted(replicas, key=lambda replica: (_end_time(observation, replica), replica))
    if len(in_time) <= 1:
        return in_time
    until = add_seconds(_end_time(observation, in_time[0]), TIME_PRECISION)
    at_once = takewhile(lambda replica: _end_time(observation, replica) <= until, in_time)
    cause = next((replica for replica in at_once if not _lost_peer(observation, replica)), in_time[0])
    return [cause, *(replica for replica in in_time if replica != cause)]


def _end_time(observation: JobObservation, replica: Replica) -> datetime:
    ending = observation.replica_states[replica].termination
    at = ending.finished_at if ending is not None else None
    return at or MAX_TIME


def _lost_peer(observation: JobObservation, replica: Replica) -> bool:
    ending = observation.replica_states[replica].termination
    return ending is not None and ending.outcome is PodOutcome.FAILED and has_lost_peer(ending.message)


def _cause(member: ReplicaState) -> str:
    ending = member.termination
    if ending is None:
        return "has ended"
    if ending.outcome is PodOutcome.DISRUPTED:
        why = (ending.reason, name_replicas(ending.caused_by) if ending.caused_by else "")
        return f"was disrupted ({': '.join(filter(None, why))})"
    summary = _failure(ending)
    if ending.exit_code in KILL_SIGNALS or ending.exit_code in CRASH_SIGNALS:
        return summary  # The last output of a program that a signal ended does not explain its end.
    last = telling_line(ending.message)[-MAX_LAST_LINE_LENGTH:]
    return f"{summary}: {last}" if last else summary


def _failure(ending: PodTermination) -> str:
    if ending.exit_code is None:
        return f"failed ({ending.reason or 'no exit code'})"
    if ending.exit_code in KILL_SIGNALS and ending.reason in {"", "Error"}:
        return f"was killed ({KILL_SIGNALS[ending.exit_code]}, exit code {ending.exit_code})"
    if ending.exit_code in CRASH_SIGNALS and ending.reason in {"", "Error"}:
        return f"was ended by {CRASH_SIGNALS[ending.exit_code]} (exit code {ending.exit_code})"
    # Almost every failure has the reason Error, which explains nothing.
    why = f" ({ending.reason})" if ending.reason not in {"", "Error"} else ""
    return f"failed with exit code {ending.exit_code}{why}"
