"""Asking the policy: what it may not do is refused, and a bug of its own is told, not passed on."""

from __future__ import annotations

import structlog

from tarragon.operator.meter import Meter
from tarragon.scheduling.checked import Checked, checked
from tarragon.scheduling.policies import Policy
from tarragon.scheduling.snapshot import Snapshot

POLICY = "policy"
"""What a round is counted as in which the policy failed altogether."""

log = structlog.get_logger(__name__)


NOTHING = Checked(sound=(), violations=(), again=None)


class Judge:
    """Its rounds follow one another; `has_failed` is of the last."""

    def __init__(self, policy: Policy, meter: Meter) -> None:
        self._policy = policy
        self._meter = meter
        self.has_failed = False

    def decide(self, snapshot: Snapshot) -> Checked:
        """Nothing where the policy fails: who runs goes on, and who waits waits, until it is asked again."""
        try:
            found = checked(snapshot, self._policy(snapshot))
        except Exception:
            self.has_failed = True
            self._meter.refused(POLICY)
            sizes = {"nodes": len(snapshot.nodes), "waiting": len(snapshot.waiting), "running": len(snapshot.running)}
            log.exception("the policy met a bug; nothing was decided, and it is asked again", **sizes)
            return NOTHING
        self.has_failed = False
        for violation in found.violations:
            self._meter.refused(type(violation.decision).__name__)
            log.error("a decision of the policy was refused", decision=repr(violation.decision), why=violation.why)
        return found
