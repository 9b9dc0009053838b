"""Sets job conditions by the rules of the training operator (without its defects), for clients that rely on them.

The last condition is the most recent one. A final condition is never changed. Setting a condition to what it already
is changes nothing. A new reason or message alone keeps the transition time. Running and Restarting exclude each other.
Succeeded, Failed and Suspended turn Running and Restarting to False. Conditions that the training operator does not
have come before those that it has.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from tarragon.job.status import Condition

CREATED = "Created"
RUNNING = "Running"
RESTARTING = "Restarting"
SUSPENDED = "Suspended"
SUCCEEDED = "Succeeded"
FAILED = "Failed"

ADMITTED = "Admitted"
"""False while the gang waits, with the wait code as the reason; True once the gang is admitted."""
ADMISSION_DISCARDED = "AdmissionRefused"
"""True once an admission that the scheduler did not write was found in the job's status and discarded."""
BLOCKED = "Blocked"
"""True while something outside the job keeps a replica from being created, bound or started."""
EVICTED = "Evicted"
"""True while a job that was running waits because another job preempted it."""
FIELDS_IGNORED = "FieldsIgnored"
"""True if the manifest has fields that Tarragon does not know, or that the API server drops from pods."""
GPU_ISOLATION = "GpuIsolation"
"""Of a job that shares GPUs with others: whether NVIDIA's MPS keeps the programs to their limits."""
NOT_GROWN = "NotGrown"
"""True while a job has fewer replicas than requested because the running ones could not use more."""
RESIZED = "Resized"
"""True once a job was resized. The message says what changed last, and why."""
STALLED = "Stalled"
"""True while replicas don't start or are not ready for a cause that does not cost the gang its admission."""
SPEC_INVALID = "SpecRefused"
"""True while an edit of a started job is invalid. The job continues with its last valid spec."""

RESUMED = "Resumed"
INVALID = "Invalid"
"""Reasons that differ from the type of their condition. Each generation has its own spelling of all reasons."""

BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
DEADLINE_EXCEEDED = "DeadlineExceeded"
LIMIT_EXCEEDED_REASONS = frozenset({BACKOFF_LIMIT_EXCEEDED, DEADLINE_EXCEEDED})
"""Reasons of a failure that all generations spell the same."""

TRAINING_OPERATOR_CONDITIONS = frozenset({CREATED, RUNNING, RESTARTING, SUSPENDED, SUCCEEDED, FAILED})

FINISHED = frozenset({SUCCEEDED, FAILED})
_EXCLUDES = {RUNNING: RESTARTING, RESTARTING: RUNNING}
_ACTIVE = frozenset({RUNNING, RESTARTING})

Conditions = tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """The desired state of one condition, without its timestamps."""

    type: str
    is_true: bool
    reason: str
    message: str


def set_condition(known: Conditions, said: ConditionUpdate, now: dt.datetime) -> Conditions:
    """Set one condition and return the new conditions, by the rules of this module."""
    before = next((condition for condition in known if condition.type == said.type), None)
    if _is_final(known, said) or _is_unchanged(before, said):
        return known
    changed = before.last_transition_time if before is not None and before.is_true == said.is_true else now
    new = Condition(
        type=said.type,
        is_true=said.is_true,
        reason=said.reason,
        message=said.message,
        last_update_time=now,
        last_transition_time=changed,
    )
    if said.type not in TRAINING_OPERATOR_CONDITIONS:
        return (new, *(condition for condition in known if condition.type != said.type))
    kept = (condition for condition in known if condition.type not in {said.type, _excluded(said)})
    return (*(_turned_off(condition, said, now) for condition in kept), new)


def remove_condition(known: Conditions, kind: str) -> Conditions:
    """The conditions without the one of that type: for Tarragon's own conditions that no longer hold."""
    return tuple(condition for condition in known if condition.type != kind)


def _is_final(known: Conditions, said: ConditionUpdate) -> bool:
    return said.type in TRAINING_OPERATOR_CONDITIONS and any(
        condition.is_true and condition.type in FINISHED for condition in known
    )


def _is_unchanged(before: Condition | None, said: ConditionUpdate) -> bool:
    return before is not None and (before.is_true, before.reason, before.message) == (
        said.is_true,
        said.reason,
        said.message,
    )


def _excluded(said: ConditionUpdate) -> str | None:
    return _EXCLUDES.get(said.type) if said.is_true else None


def _turned_off(condition: Condition, said: ConditionUpdate, now: dt.datetime) -> Condition:
    stops_job = said.is_true and said.type in {*FINISHED, SUSPENDED}
    if not stops_job or condition.type not in _ACTIVE or not condition.is_true:
        return condition
    return Condition(
        type=condition.type,
        is_true=False,
        reason=said.reason,
        message=said.message,
        last_update_time=now,
        last_transition_time=now,
    )
