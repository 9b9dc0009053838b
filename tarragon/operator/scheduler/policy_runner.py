"""Asking the policy: what it may not do is refused, and a bug of its own is told, not passed on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import structlog

from tarragon.operator.metrics.meter import Meter
from tarragon.operator.scheduler.culprit import culprit, without
from tarragon.scheduling.api.decision import SCHEDULER_ERROR, Wait
from tarragon.scheduling.api.snapshot import Gang, Snapshot
from tarragon.scheduling.cycle.decision_validation import Checked, checked
from tarragon.scheduling.policies import Policy

POLICY = "policy"
"""What a round is counted as in which the policy failed altogether."""
ASIDE = dt.timedelta(minutes=1)
"""A gang that the policy fails with is shown to it again after this long, or once it asks for something else."""
MOST_ASIDE = 20
"""Gangs. Where it fails with more, it is the policy that is to blame, and looking for others would never end."""

log = structlog.get_logger(__name__)


NOTHING = Checked(sound=(), violations=(), again=None)


@dataclass(frozen=True, slots=True)
class _Aside:
    gang: Gang
    until: dt.datetime
    why: str


class Judge:
    """Its rounds follow one another; `has_failed` is of the last."""

    def __init__(self, policy: Policy, meter: Meter) -> None:
        self._policy = policy
        self._meter = meter
        self._aside: dict[str, _Aside] = {}
        self.has_failed = False

    def decide(self, snapshot: Snapshot) -> Checked:
        """Nothing where the policy fails: who runs goes on, and who waits waits, until it is asked again.

        Where it fails because of a gang that waits, that one is put aside, and the others go on.
        """
        suspected = self._take_back(snapshot)
        try:
            found = self._ask(without(self._aside, snapshot))
        except Exception as error:  # noqa: BLE001 - whatever a policy raises, it is told below
            after = self._without_culprit(snapshot, suspected, error)
            self.has_failed = after is None
            if after is None:
                self._tell_failure(snapshot, error)
                return NOTHING
            found = after
        self.has_failed = False
        for violation in found.violations:
            self._meter.refused(type(violation.decision).__name__)
            log.error("a decision of the policy was refused", decision=repr(violation.decision), why=violation.why)
        return self._with_those_aside(found) if self._aside else found

    def _ask(self, snapshot: Snapshot) -> Checked:
        return checked(snapshot, self._policy(snapshot))

    def _take_back(self, snapshot: Snapshot) -> Mapping[str, _Aside]:
        """Those that it is to try again, which it may fail with again."""
        if not self._aside:
            return {}
        waiting = {gang.name: gang for gang in snapshot.waiting}
        self._aside = {name: each for name, each in self._aside.items() if waiting.get(name) == each.gang}
        ripe = {name: each for name, each in self._aside.items() if each.until <= snapshot.now}
        for name in ripe:
            del self._aside[name]
        return ripe

    def _without_culprit(self, snapshot: Snapshot, suspected: Mapping[str, _Aside], error: Exception) -> Checked | None:
        """None where it fails whoever is left out. Those it has failed with before are looked at first."""
        if suspected:
            self._put_aside(suspected.values(), snapshot.now)
            try:
                return self._ask(without(self._aside, snapshot))
            except Exception as another:  # noqa: BLE001 - whatever a policy raises, it is told below
                error = another
        if len(self._aside) >= MOST_ASIDE:
            return None
        found = culprit(self._ask, without(self._aside, snapshot), error)
        if found is None:
            return None
        name, error = found.gang.name, found.error
        log.error("the policy met a bug with one gang, and goes on without it", gang=name, exc_info=error)
        why = f"the scheduler can't decide about it, and goes on without it: {type(error).__name__}: {error}"
        self._put_aside([_Aside(found.gang, snapshot.now, why)], snapshot.now)
        try:
            return self._ask(without(self._aside, snapshot))
        except Exception:  # noqa: BLE001 - it fails with another one, too, which the next round finds
            return replace(found.otherwise, again=snapshot.now)

    def _put_aside(self, several: Collection[_Aside], now: dt.datetime) -> None:
        for each in several:
            self._aside[each.gang.name] = replace(each, until=now + ASIDE)

    def _with_those_aside(self, found: Checked) -> Checked:
        waits = [Wait(name, SCHEDULER_ERROR, self._aside[name].why) for name in sorted(self._aside)]
        ends = [each.until for each in self._aside.values()]
        again = min(ends if found.again is None else [found.again, *ends])
        return replace(found, sound=[*found.sound, *waits], again=again)

    def _tell_failure(self, snapshot: Snapshot, error: Exception) -> None:
        self._meter.refused(POLICY)
        sizes = {"nodes": len(snapshot.nodes), "waiting": len(snapshot.waiting), "running": len(snapshot.running)}
        log.error("the policy met a bug; nothing was decided, and it is asked again", **sizes, exc_info=error)
