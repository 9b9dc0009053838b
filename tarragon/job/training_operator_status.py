"""Encodes and decodes the status fields that all generations since v1beta1 share: conditions, counts, times."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping

from tarragon.job.model import ReplicaType, TrainingJob, is_replica_type
from tarragon.job.phase import Phase
from tarragon.job.status import Condition, JobStatus, ReplicaStatus
from tarragon.kube.codec import format_time, parse_time
from tarragon.kube.meta import Json

UNKNOWN_TIME = dt.datetime.fromtimestamp(0, dt.UTC)
"""Stands for the time of a condition that has no valid time."""
_LAST_PHASES = frozenset({"CleanUp", "Done", "Failed"})
"""Values of `status.phase` in generations without conditions that mean that the job has finished."""


def status_fields(_: TrainingJob, status: JobStatus) -> dict[str, Json]:
    """The status fields as clients of the training operator expect them."""
    fields: dict[str, Json] = {
        **conditions_field(status),
        "replicaStatuses": {str(kind): _counted(counts) for kind, counts in status.replica_statuses.items()},
    }
    if status.start_time is not None:
        fields["startTime"] = format_time(status.start_time)
    if status.completion_time is not None:
        fields["completionTime"] = format_time(status.completion_time)
    return fields


def invalid_job_fields(status: JobStatus) -> dict[str, Json]:
    """The status fields of an invalid job, which has no replicas to count."""
    fields: dict[str, Json] = conditions_field(status)
    if status.completion_time is not None:
        fields["completionTime"] = format_time(status.completion_time)
    return fields


def conditions_field(status: JobStatus) -> dict[str, Json]:
    return {"conditions": [condition_fields(condition) for condition in status.conditions]}


def condition_fields(condition: Condition) -> dict[str, str]:
    return {
        "type": condition.type,
        "status": "True" if condition.is_true else "False",
        "reason": condition.reason,
        "message": condition.message,
        "lastUpdateTime": format_time(condition.last_update_time),
        "lastTransitionTime": format_time(condition.last_transition_time),
    }


def decode_conditions(found: Json) -> tuple[Condition, ...]:
    """Decode conditions. Items that are invalid or have no type are skipped."""
    items = found if isinstance(found, list | tuple) else ()
    return tuple(_condition(item) for item in items if isinstance(item, Mapping) and _text(item, "type"))


def decode_replica_statuses(found: Json) -> dict[ReplicaType, ReplicaStatus]:
    if not isinstance(found, Mapping):
        return {}
    statuses: dict[ReplicaType, ReplicaStatus] = {}
    for name, counts in found.items():
        if is_replica_type(name) and isinstance(counts, Mapping):
            numbers = {each: _count(counts, each) for each in ("active", "succeeded", "failed")}
            statuses[ReplicaType(name)] = ReplicaStatus(**numbers)
    return statuses


def decode_time(found: Json) -> dt.datetime | None:
    try:
        return parse_time(found) if isinstance(found, str) else None
    except (ValueError, OverflowError):
        return None


def phase_of(known: Iterable[Condition], state: Json) -> Phase:
    """Derive the phase from the conditions. `state`, which is for humans, counts only if no condition is conclusive."""
    true = {condition.type for condition in known if condition.is_true}
    for candidate in (Phase.FAILED, Phase.SUCCEEDED, Phase.SUSPENDED, Phase.RESTARTING, Phase.RUNNING):
        if candidate.value in true:
            return candidate
    if Phase.CREATED.value in true or not isinstance(state, str):
        return Phase.CREATED
    return next((candidate for candidate in Phase if candidate.value == state), Phase.CREATED)


def final_state(shown: Mapping[str, Json]) -> str:
    """The final state in a status without conditions, from `phase_of` and `state`; empty if the job is not finished."""
    state = _text(shown, "state")
    is_over = _text(shown, "phase") in _LAST_PHASES and state in {Phase.SUCCEEDED, Phase.FAILED}
    return state if is_over else ""


def _condition(item: Mapping[str, Json]) -> Condition:
    changed = decode_time(item.get("lastTransitionTime"))
    updated = decode_time(item.get("lastUpdateTime"))
    return Condition(
        type=_text(item, "type"),
        is_true=item.get("status") == "True",
        reason=_text(item, "reason"),
        message=_text(item, "message"),
        last_update_time=updated or changed or UNKNOWN_TIME,
        last_transition_time=changed or updated or UNKNOWN_TIME,
    )


def _counted(found: ReplicaStatus) -> dict[str, int]:
    return {"active": found.active, "succeeded": found.succeeded, "failed": found.failed}


def _text(item: Mapping[str, Json], name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else ""


def _count(item: Mapping[str, Json], name: str) -> int:
    value = item.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
