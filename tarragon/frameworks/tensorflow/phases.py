"""Encodes the status before v1alpha2: phase, state, reason, and the number of replicas in each state by type.

It has no fields for conditions, counts and times; these are in `status.tarragon.record`.
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
"""The spelling of condition reasons in `status.tarragon.record`."""

_EXPLANATIONS = (
    conditions.FAILED,
    conditions.SPEC_REFUSED,
    conditions.SUSPENDED,
    conditions.BLOCKED,
    conditions.STALLED,
    conditions.RESTARTING,
)


class OldPhase(StrEnum):
    """The progress of the operator. FAILED is a job that could not start; a job that ran and failed is DONE."""

    CREATING = "Creating"
    RUNNING = "Running"
    CLEAN_UP = "CleanUp"
    FAILED = "Failed"
    DONE = "Done"


class State(StrEnum):
    """The state of the job, or of all replicas of a type."""

    UNKNOWN = "Unknown"
    RUNNING = "Running"
    FAILED = "Failed"
    SUCCEEDED = "Succeeded"


def write(job: TrainingJob, status: JobStatus) -> dict[str, Json]:
    return {**refused(status), "phase": _phase(job, status).value, "replicaStatuses": _replica_statuses(job, status)}


def refused(status: JobStatus) -> dict[str, Json]:
    """The status fields of a job that can't be decoded. An invalid edit does not change the phase."""
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
    """The state. As in the original operator, a job is Running from the start. Suspension did not exist: Unknown."""
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
    """Why the job failed or is not running, for humans; empty if there is nothing to explain."""
    if status.phase is Phase.SUCCEEDED:
        return ""
    found = (each for kind in _EXPLANATIONS if (each := status.condition(kind)) is not None and each.is_true)
    admitted = status.condition(conditions.ADMITTED)
    wait_message = admitted.message if admitted is not None and not admitted.is_true else ""
    return next((condition.message for condition in found), wait_message)


def _replica_statuses(job: TrainingJob, status: JobStatus) -> list[Json]:
    return [_replica_status(group, status) for group in job.groups]


def _replica_status(group: ReplicaGroup, status: JobStatus) -> Json:
    """The replicas of a type by state. Replicas that were stopped when the job ended are in no state."""
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
