"""Encodes the status before v1alpha2: phase, state, reason, and the number of replicas in each state by type.

It has no fields for counts and times; these are in `status.tarragon.record`, with the conditions. Conditions are also
written beside these fields, for `kubectl wait`: the operators' Go types had such a field, or ignore it.
"""

from __future__ import annotations

from enum import StrEnum

from tarragon.frameworks.kubeflow.fields import condition_reason
from tarragon.frameworks.tensorflow.fields import KIND
from tarragon.job import conditions
from tarragon.job.model import CleanPodPolicy, ReplicaSpec, TrainingJob
from tarragon.job.phase import Phase
from tarragon.job.status import JobStatus, ReplicaStatus
from tarragon.kube.meta import Json

reason_of = condition_reason(KIND, invalid="InvalidTFJobSpec")
"""The spelling of condition reasons in `status.tarragon.record`."""

_EXPLANATIONS = (
    conditions.FAILED,
    conditions.SPEC_INVALID,
    conditions.SUSPENDED,
    conditions.BLOCKED,
    conditions.STALLED,
    conditions.RESTARTING,
)


class OperatorPhase(StrEnum):
    """The progress of the operator. FAILED is a job that could not start; a job that ran and failed is DONE."""

    CREATING = "Creating"
    RUNNING = "Running"
    CLEAN_UP = "CleanUp"
    FAILED = "Failed"
    DONE = "Done"


class LegacyState(StrEnum):
    """The state of the job, or of all replicas of a type."""

    UNKNOWN = "Unknown"
    RUNNING = "Running"
    FAILED = "Failed"
    SUCCEEDED = "Succeeded"


def status_fields(job: TrainingJob, status: JobStatus) -> dict[str, Json]:
    return {
        **invalid_job_fields(status),
        "phase": _phase(job, status).value,
        "replicaStatuses": _replica_statuses(job, status),
    }


def invalid_job_fields(status: JobStatus) -> dict[str, Json]:
    """The status fields of a job that can't be decoded. An invalid edit does not change the phase."""
    fields: dict[str, Json] = {"controlPaused": False, "reason": _reason(status), "state": _state(status).value}
    return {**fields, "phase": OperatorPhase.FAILED.value} if status.phase is Phase.FAILED else fields


def _phase(job: TrainingJob, status: JobStatus) -> OperatorPhase:
    if status.phase.is_final:
        if _could_not_begin(status):
            return OperatorPhase.FAILED
        return OperatorPhase.CLEAN_UP if _is_being_cleaned_up(job, status) else OperatorPhase.DONE
    return OperatorPhase.RUNNING if status.phase in {Phase.RUNNING, Phase.RESTARTING} else OperatorPhase.CREATING


def _could_not_begin(status: JobStatus) -> bool:
    failed = status.condition(conditions.FAILED)
    return failed is not None and failed.reason == reason_of(conditions.INVALID)


def _is_being_cleaned_up(job: TrainingJob, status: JobStatus) -> bool:
    is_left = job.run_policy.clean_pod_policy is CleanPodPolicy.NONE
    return not is_left and any(counts.active for counts in status.replica_statuses.values())


def _state(status: JobStatus) -> LegacyState:
    """The state. As in the original operator, a job is Running from the start. Suspension did not exist: Unknown."""
    match status.phase:
        case Phase.CREATED | Phase.RUNNING | Phase.RESTARTING:
            return LegacyState.RUNNING
        case Phase.SUSPENDED:
            return LegacyState.UNKNOWN
        case Phase.SUCCEEDED:
            return LegacyState.SUCCEEDED
        case Phase.FAILED:
            return LegacyState.FAILED


def _reason(status: JobStatus) -> str:
    """Why the job failed or is not running, for humans; empty if there is nothing to explain."""
    if status.phase is Phase.SUCCEEDED:
        return ""
    found = (each for kind in _EXPLANATIONS if (each := status.condition(kind)) is not None and each.is_true)
    admitted = status.condition(conditions.ADMITTED)
    wait_message = admitted.message if admitted is not None and not admitted.is_true else ""
    return next((condition.message for condition in found), wait_message)


def _replica_statuses(job: TrainingJob, status: JobStatus) -> list[Json]:
    return [_replica_status(group, status) for group in job.replica_specs]


def _replica_status(group: ReplicaSpec, status: JobStatus) -> Json:
    """The replicas of a type by state. Replicas that were stopped when the job ended are in no state."""
    counts = status.replica_statuses.get(group.type, ReplicaStatus())
    rest = 0 if status.phase.is_final else group.replicas - counts.active - counts.succeeded - counts.failed
    states = {
        LegacyState.RUNNING: counts.active,
        LegacyState.FAILED: counts.failed,
        LegacyState.SUCCEEDED: counts.succeeded,
        LegacyState.UNKNOWN: max(rest, 0),
    }
    return {
        "tf_replica_type": group.type.upper(),
        "state": _of_all(states).value,
        "ReplicasStates": {state.value: count for state, count in states.items() if count},
    }


def _of_all(states: dict[LegacyState, int]) -> LegacyState:
    if states[LegacyState.FAILED]:
        return LegacyState.FAILED
    if states[LegacyState.RUNNING]:
        return LegacyState.RUNNING
    return (
        LegacyState.SUCCEEDED
        if states[LegacyState.SUCCEEDED] and not states[LegacyState.UNKNOWN]
        else LegacyState.UNKNOWN
    )
