"""Setting conditions, so that old clients read them as they always did: the last one is the most recent.

The rules, of the training operator but for its defects: a final condition stays; the same words twice change nothing;
another reason alone keeps the time of transition; Running and Restarting exclude each other; an end, or a suspension,
turns what ran to False. Conditions that the old operators did not have stand before theirs.
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
"""False with the code of the wait as its reason, True once the gang has its places."""
ADMISSION_REFUSED = "AdmissionRefused"
"""True once the job's status had an admission that the scheduler could not have decided: it counted for nothing."""
BLOCKED = "Blocked"
"""True while something outside of the job keeps a replica from being made, bound or started."""
EVICTED = "Evicted"
"""True while a job waits that ran, and had to give all its places to another one."""
FIELDS_IGNORED = "FieldsIgnored"
"""True when the manifest has fields that nobody knows."""
NOT_GROWN = "NotGrown"
"""True while a job has fewer replicas than it wishes for, because those that run could not use more."""
RESIZED = "Resized"
"""True once a job has another size than it was started with: what was changed last, and why."""
STALLED = "Stalled"
"""True while replicas do not get to run, or are not ready, for which nothing is given back."""
SPEC_REFUSED = "SpecRefused"
"""True while an edit of a job that had started makes no sense; the job goes on as it is."""

RESUMED = "Resumed"
INVALID = "Invalid"
"""Reasons beside those that are called as their conditions; each generation has its own words for all of them."""

BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
DEADLINE_EXCEEDED = "DeadlineExceeded"
LIMITS = frozenset({BACKOFF_LIMIT_EXCEEDED, DEADLINE_EXCEEDED})
"""Reasons of a failure that each generation calls alike."""

CLASSIC = frozenset({CREATED, RUNNING, RESTARTING, SUSPENDED, SUCCEEDED, FAILED})

FINAL = frozenset({SUCCEEDED, FAILED})
_REMOVES = {RUNNING: RESTARTING, RESTARTING: RUNNING}
_ENDS = frozenset({RUNNING, RESTARTING})

Conditions = tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """What a condition is to say."""

    type: str
    is_true: bool
    reason: str
    message: str


def with_condition(known: Conditions, said: Said, now: dt.datetime) -> Conditions:
    """The conditions after that was said."""
    before = next((condition for condition in known if condition.type == said.type), None)
    if _is_settled(known, said) or _says(before, said):
        return known
    changed = before.changed if before is not None and before.is_true == said.is_true else now
    new = Condition(
        type=said.type, is_true=said.is_true, reason=said.reason, message=said.message, updated=now, changed=changed
    )
    if said.type not in CLASSIC:
        return (new, *(condition for condition in known if condition.type != said.type))
    kept = (condition for condition in known if condition.type not in {said.type, _removed(said)})
    return (*(_ended(condition, said, now) for condition in kept), new)


def without_condition(known: Conditions, kind: str) -> Conditions:
    """For conditions of our own that no longer hold."""
    return tuple(condition for condition in known if condition.type != kind)


def _is_settled(known: Conditions, said: Said) -> bool:
    return said.type in CLASSIC and any(condition.is_true and condition.type in FINAL for condition in known)


def _says(before: Condition | None, said: Said) -> bool:
    return before is not None and (before.is_true, before.reason, before.message) == (
        said.is_true,
        said.reason,
        said.message,
    )


def _removed(said: Said) -> str | None:
    return _REMOVES.get(said.type) if said.is_true else None


def _ended(condition: Condition, said: Said, now: dt.datetime) -> Condition:
    ends = said.is_true and said.type in {*FINAL, SUSPENDED}
    if not ends or condition.type not in _ENDS or not condition.is_true:
        return condition
    return Condition(
        type=condition.type, is_true=False, reason=said.reason, message=said.message, updated=now, changed=now
    )
