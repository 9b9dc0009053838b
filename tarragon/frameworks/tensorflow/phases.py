"""The status before v1alpha2: a phase, a state, a reason, and for each replica type how many are in which state.

There is no room in it for conditions, counts and times: `status.tarragon.record` has them.
"""

from __future__ import annotations

from enum import StrEnum

from tarragon.frameworks.tensorflow.fields import reasons
from tarragon.job import conditions
from tarragon.job.model import CleanPodPolicy, ReplicaGroup, TrainingJob
from tarragon.job.phase import Phase
from tarragon.job.status import JobStatus, ReplicaCounts
from tarragon.kube.meta import Json

reason_of = reasons(invalid="InvalidTFJobSpec")
"""Of the conditions on record."""

_TELLING = (
    conditions.FAILED,
    conditions.SPEC_REFUSED,
    conditions.SUSPENDED,
    conditions.BLOCKED,
    conditions.STALLED,
    conditions.RESTARTING,
)


class OldPhase(StrEnum):
    """How far the operator has come. FAILED is a job that could not even begin; one that ended badly is DONE."""

    CREATING = "Creating"
    RUNNING = "Running"
    CLEAN_UP = "CleanUp"
    FAILED = "Failed"
    DONE = "Done"


class State(StrEnum):
    """How the job, or all replicas of a type, are doing."""

    UNKNOWN = "Unknown"
    RUNNING = "Running"
    FAILED = "Failed"
    SUCCEEDED = "Succeeded"


def write(job: TrainingJob, status: JobStatus) -> dict[str, Json]:
    return {**refused(status), "phase": _phase(job, status).value, "replicaStatuses": _replica_statuses(job, status)}


def refused(status: JobStatus) -> dict[str, Json]:
    """What can be said of a job that can't be read. An edit that makes no sense leaves the phase as it is."""
    fields: dict[str, Json] = {"controlPaused": False, "reason": _reason(status), "state": _state(status).value}
    return {**fields, "phase": OldPhase.FAILED.value} if status.phase is Phase.FAILED else fields


def _phase(job: TrainingJob, status: JobStatus) -> OldPhase:
    if status.phase.is_final:
        if _could_not_begin(status):
            return OldPhase.FAILED
        return OldPhase.CLEAN_UP if _is_being_cleaned_up(job, status) else OldPhase.DONE
    return OldPhase.RUNNING if status.phase in {Phase.RUNNING, Phase.RESTARTING} else OldPhase.CREATING


def _could_not_begin(status: JobStatus) -> bool:
    failed = status.condition(conditions.FAILED)
    return failed is not None and failed.reason == reason_of(conditions.INVALID)


def _is_being_cleaned_up(job: TrainingJob, status: JobStatus) -> bool:
    is_left = job.run_policy.clean_pods is CleanPodPolicy.NONE
    return not is_left and any(counts.active for counts in status.counts.values())


def _state(status: JobStatus) -> State:
    """From the beginning on a job was said to be running, also before its pods were. Of suspension nobody knew."""
    match status.phase:
        case Phase.CREATED | Phase.RUNNING | Phase.RESTARTING:
            return State.RUNNING
        case Phase.SUSPENDED:
            return State.UNKNOWN
        case Phase.SUCCEEDED:
            return State.SUCCEEDED
        case Phase.FAILED:
            return State.FAILED


def _reason(status: JobStatus) -> str:
    """In words, how it failed, or why it is not running; empty where there is nothing to explain."""
    if status.phase is Phase.SUCCEEDED:
        return ""
    told = (condition for kind in _TELLING if (condition := status.condition(kind)) is not None and condition.is_true)
    waits = status.condition(conditions.ADMITTED)
    missing = waits.message if waits is not None and not waits.is_true else ""
    return next((condition.message for condition in told), missing)


def _replica_statuses(job: TrainingJob, status: JobStatus) -> list[Json]:
    return [_replica_status(group, status) for group in job.groups]


def _replica_status(group: ReplicaGroup, status: JobStatus) -> Json:
    """True counts: what was stopped when the job ended is in no state any more."""
    counts = status.counts.get(group.type, ReplicaCounts())
    rest = 0 if status.phase.is_final else group.wish - counts.active - counts.succeeded - counts.failed
    states = {
        State.RUNNING: counts.active,
        State.FAILED: counts.failed,
        State.SUCCEEDED: counts.succeeded,
        State.UNKNOWN: max(rest, 0),
    }
    return {
        "tf_replica_type": group.type.value.upper(),
        "state": _of_all(states).value,
        "ReplicasStates": {state.value: count for state, count in states.items() if count},
    }


def _of_all(states: dict[State, int]) -> State:
    if states[State.FAILED]:
        return State.FAILED
    if states[State.RUNNING]:
        return State.RUNNING
    return State.SUCCEEDED if states[State.SUCCEEDED] and not states[State.UNKNOWN] else State.UNKNOWN
