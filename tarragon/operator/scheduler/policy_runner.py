"""Runs the policy: rejects decisions that violate the rules, and reports a policy's exceptions instead of raising."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import structlog

from tarragon.operator.metrics.meter import Meter
from tarragon.operator.scheduler.culprit import find_faulty_gang, without_gangs
from tarragon.scheduling.api.decision import SCHEDULER_ERROR, Defer
from tarragon.scheduling.api.snapshot import Snapshot, WaitingGang
from tarragon.scheduling.cycle.decision_validation import ValidatedDecisions, validate_decisions
from tarragon.scheduling.state.memory import Memory, Policy

POLICY_FAILED = "policy"
"""The `decision` label that counts scheduling cycles in which the policy produced no decisions because it raised."""
RETRY_AFTER = dt.timedelta(minutes=1)
"""A gang that makes the policy raise is retried after this long, or as soon as its requests change."""
MAX_FAULTY_GANGS = 20
"""Gangs set aside at the same time. If more would be needed, the policy itself is at fault and the search stops."""

log = structlog.get_logger(__name__)


NO_DECISIONS = ValidatedDecisions(accepted=(), violations=(), requeue_at=None)


@dataclass(frozen=True, slots=True)
class _SetAside:
    gang: WaitingGang
    until: dt.datetime
    why: str


class PolicyRunner:
    """Runs the policy once per scheduling cycle; `has_failed` describes the last cycle."""

    def __init__(self, policy: Policy, meter: Meter) -> None:
        self._policy = policy
        self._memory = Memory()
        self._meter = meter
        self._set_aside: dict[str, _SetAside] = {}
        self.has_failed = False

    def run(self, snapshot: Snapshot) -> ValidatedDecisions:
        """The policy's valid decisions; none if it raises, which leaves running and waiting gangs as they are.

        If the policy raises because of one waiting gang, that gang is set aside and the others are scheduled.
        """
        suspected = self._take_expired(snapshot)
        try:
            checked_decisions = self._run_policy(without_gangs(self._set_aside, snapshot))
        except Exception as error:  # noqa: BLE001 - a policy may raise anything; it is logged below
            retried = self._isolate(snapshot, suspected, error)
            self.has_failed = retried is None
            if retried is None:
                self._log_failure(snapshot, error)
                return NO_DECISIONS
            checked_decisions = retried
        self.has_failed = False
        for violation in checked_decisions.violations:
            self._meter.decision_rejected(type(violation.decision).__name__)
            log.error("rejected an invalid policy decision", decision=repr(violation.decision), why=violation.reason)
        return self._with_set_aside_waits(checked_decisions) if self._set_aside else checked_decisions

    def _run_policy(self, snapshot: Snapshot) -> ValidatedDecisions:
        try:
            return validate_decisions(snapshot, self._policy(snapshot, self._memory))
        except Exception:
            self._memory = Memory()  # The policy may have left it half-updated.
            raise

    def _take_expired(self, snapshot: Snapshot) -> Mapping[str, _SetAside]:
        """Remove and return the gangs whose time set aside is over; the policy may raise for them again."""
        if not self._set_aside:
            return {}
        waiting = {gang.name: gang for gang in snapshot.waiting}
        self._set_aside = {name: each for name, each in self._set_aside.items() if waiting.get(name) == each.gang}
        expired = {name: each for name, each in self._set_aside.items() if each.until <= snapshot.now}
        for name in expired:
            del self._set_aside[name]
        return expired

    def _isolate(
        self, snapshot: Snapshot, suspected: Mapping[str, _SetAside], error: Exception
    ) -> ValidatedDecisions | None:
        """The decisions without the gang at fault; None if no single gang is. `suspected` gangs are tried first."""
        if suspected:
            self._set_gangs_aside(suspected.values(), snapshot.now)
            try:
                return self._run_policy(without_gangs(self._set_aside, snapshot))
            except Exception as another:  # noqa: BLE001 - a policy may raise anything; it is logged below
                error = another
        if len(self._set_aside) >= MAX_FAULTY_GANGS:
            return None
        found = find_faulty_gang(self._run_policy, without_gangs(self._set_aside, snapshot), error)
        if found is None:
            return None
        name, error = found.gang.name, found.error
        log.error("the policy failed on one gang; scheduling continues without it", gang=name, exc_info=error)
        why = f"the scheduler failed on this job and continues without it: {type(error).__name__}: {error}"
        self._set_gangs_aside([_SetAside(found.gang, snapshot.now, why)], snapshot.now)
        try:
            return self._run_policy(without_gangs(self._set_aside, snapshot))
        except Exception:  # noqa: BLE001 - another gang is at fault too; the next cycle finds it
            return replace(found.decisions_without, requeue_at=snapshot.now)

    def _set_gangs_aside(self, gangs: Collection[_SetAside], now: dt.datetime) -> None:
        for each in gangs:
            self._set_aside[each.gang.name] = replace(each, until=now + RETRY_AFTER)

    def _with_set_aside_waits(self, found: ValidatedDecisions) -> ValidatedDecisions:
        aside_waits = [Defer(name, SCHEDULER_ERROR, self._set_aside[name].why) for name in sorted(self._set_aside)]
        ends = [each.until for each in self._set_aside.values()]
        again = min(ends if found.requeue_at is None else [found.requeue_at, *ends])
        return replace(found, accepted=[*found.accepted, *aside_waits], requeue_at=again)

    def _log_failure(self, snapshot: Snapshot, error: Exception) -> None:
        self._meter.decision_rejected(POLICY_FAILED)
        sizes = {"nodes": len(snapshot.nodes), "waiting": len(snapshot.waiting), "running": len(snapshot.running)}
        log.error("the policy failed: nothing was decided, and it will be retried", **sizes, exc_info=error)
