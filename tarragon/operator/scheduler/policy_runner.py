"""Runs the policy: rejects decisions that violate the rules, and sets a gang aside on which the policy raises."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from dataclasses import dataclass, replace

import structlog

from tarragon.operator.metrics.definitions import DECISION_LABELS, POLICY_FAILED
from tarragon.operator.metrics.meter import Meter
from tarragon.operator.scheduler.job_errors import defer_failed_job, error_text
from tarragon.scheduling.api.snapshot import RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.cycle.decision_validation import ValidatedDecisions, validate_decisions
from tarragon.scheduling.state.memory import Memory, Policy

RETRY_GANG_AFTER = dt.timedelta(minutes=1)
"""A gang on which the policy raised is tried again after this time, or as soon as the gang changes."""
RETRY_POLICY_AFTER = dt.timedelta(seconds=10)
"""A policy that raised is run again after this time, unless a change starts a cycle earlier."""
MAX_GANGS_ASIDE = 20
"""If more would have to be set aside, the policy itself is at fault and the search stops."""

log = structlog.get_logger(__name__)

Gang = WaitingGang | RunningGang


@dataclass(frozen=True, slots=True)
class _GangAside:
    gang: Gang
    error: Exception
    retry_at: dt.datetime


class PolicyRunner:
    """Runs the policy once per scheduling cycle."""

    def __init__(self, policy: Policy, meter: Meter) -> None:
        self._policy = policy
        self._memory = Memory()
        self._meter = meter
        self._aside: dict[str, _GangAside] = {}

    def run(self, snapshot: Snapshot) -> ValidatedDecisions:
        """The policy's valid decisions, none if it raises, and a wait for each gang that is set aside."""
        self._retry(snapshot)
        try:
            decisions = self._decide(snapshot, self._aside)
        except Exception as error:  # noqa: BLE001 - a policy may raise anything; it is logged below
            decisions = self._set_aside(snapshot, error)
        for violation in decisions.violations:
            self._meter.decision_rejected(DECISION_LABELS[type(violation.decision)])
            log.error("rejected an invalid policy decision", decision=repr(violation.decision), why=violation.reason)
        return self._with_waits(decisions) if self._aside else decisions

    def _set_aside(self, snapshot: Snapshot, error: Exception) -> ValidatedDecisions:
        """Set the gang at fault for the error aside, if there is one; the next cycle is due at once, without it."""
        found = self._find_gang(snapshot, error) if len(self._aside) < MAX_GANGS_ASIDE else None
        if found is None:
            self._meter.decision_rejected(POLICY_FAILED)
            sizes = {"nodes": len(snapshot.nodes), "waiting": len(snapshot.waiting), "running": len(snapshot.running)}
            log.error("the policy failed: nothing was decided, and it will be retried", **sizes, exc_info=error)
            return ValidatedDecisions(requeue_at=snapshot.now + RETRY_POLICY_AFTER)
        log.error("the policy failed on one gang, which is set aside", gang=found.gang.name, exc_info=found.error)
        self._aside[found.gang.name] = found
        return ValidatedDecisions(requeue_at=snapshot.now)

    def _decide(self, snapshot: Snapshot, without: Collection[str]) -> ValidatedDecisions:
        """Run the policy as if these gangs did not wait, or could not be changed. Raises whatever the policy raises."""
        if without:
            snapshot = replace(
                snapshot,
                waiting=[gang for gang in snapshot.waiting if gang.name not in without],
                running=[gang for gang in snapshot.running if gang.name not in without],
                unchangeable=[*snapshot.unchangeable, *(gang for gang in snapshot.running if gang.name in without)],
            )
        try:
            return validate_decisions(snapshot, self._policy(snapshot, self._memory))
        except Exception:
            self._memory = Memory()  # The policy may have left it half-updated.
            raise

    def _error(self, snapshot: Snapshot, without: Collection[str]) -> Exception | None:
        """What the policy raises without these gangs; None if it decides."""
        try:
            self._decide(snapshot, without)
        except Exception as error:  # noqa: BLE001 - a policy may raise anything; the caller tells by it who is at fault
            return error
        return None

    def _retry(self, snapshot: Snapshot) -> None:
        """Take back the gangs that have changed, and those that are due and on which the policy no longer raises."""
        if not self._aside:
            return
        gangs = {gang.name: gang for gang in _gangs(snapshot)}
        self._aside = {name: each for name, each in self._aside.items() if gangs.get(name) == each.gang}
        for name, each in list(self._aside.items()):
            if each.retry_at <= snapshot.now:
                error = self._error(snapshot, self._aside.keys() - {name})
                if error is None:
                    del self._aside[name]
                else:
                    self._aside[name] = _GangAside(each.gang, error, snapshot.now + RETRY_GANG_AFTER)

    def _find_gang(self, snapshot: Snapshot, error: Exception) -> _GangAside | None:
        """The gang at fault for the policy's `error`; None if the policy raises even without any gang.

        Bisects the gangs: one run without any of them, then one run per halving. Loop invariant: without `excluded` the
        policy raises; without both `excluded` and `suspects` it does not.
        """
        excluded = set(self._aside)
        suspects = [gang for gang in _gangs(snapshot) if gang.name not in excluded]
        if not suspects or self._error(snapshot, excluded | _names(suspects)) is not None:
            return None
        while len(suspects) > 1:
            half, rest = suspects[: len(suspects) // 2], suspects[len(suspects) // 2 :]
            another = self._error(snapshot, excluded | _names(half))
            if another is None:
                suspects = half
            else:
                error, suspects = another, rest
                excluded |= _names(half)
        return _GangAside(suspects[0], error, snapshot.now + RETRY_GANG_AFTER)

    def _with_waits(self, decisions: ValidatedDecisions) -> ValidatedDecisions:
        waits = [defer_failed_job(name, error_text(self._aside[name].error)) for name in sorted(self._aside)]
        due = [each.retry_at for each in self._aside.values()]
        requeue_at = min(due if decisions.requeue_at is None else [decisions.requeue_at, *due])
        return replace(decisions, accepted=[*decisions.accepted, *waits], requeue_at=requeue_at)


def _gangs(snapshot: Snapshot) -> list[Gang]:
    return [*snapshot.waiting, *snapshot.running]


def _names(gangs: Collection[Gang]) -> set[str]:
    return {gang.name for gang in gangs}
