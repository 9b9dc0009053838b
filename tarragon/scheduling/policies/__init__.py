"""Scheduling policies: functions from a snapshot to decisions. The operator and the simulator call the same ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tarragon.scheduling.api.decision import Decision
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.policies.backfill import backfill
from tarragon.scheduling.policies.dragon import dragon
from tarragon.scheduling.policies.fifo import fifo

Policy = Callable[[Snapshot], Sequence[Decision]]

POLICIES: Mapping[str, Policy] = {"fifo": fifo, "backfill": backfill, "dragon": dragon}
"""By `POLICY_NAMES` of `api/rules.py`."""


def name_of(policy: Policy) -> str:
    """Empty for one that is none of these."""
    return next((name for name, known in POLICIES.items() if known is policy), "")
