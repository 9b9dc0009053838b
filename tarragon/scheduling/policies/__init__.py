"""Scheduling policies: functions from a snapshot to decisions.

The operator, the forecast of `tarragon why` and the programs in bench call the same ones. A policy is pure: one that
wants chance takes it from the gangs' names and times. `why` counts positions in the order of `actions/queue_order.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.scheduling.policies.backfill import backfill
from tarragon.scheduling.policies.dragon import dragon
from tarragon.scheduling.policies.elastic import elastic
from tarragon.scheduling.policies.fifo import fifo
from tarragon.scheduling.state.memory import Policy

POLICIES: Mapping[str, Policy] = {"fifo": fifo, "backfill": backfill, "dragon": dragon, "elastic": elastic}
"""The policies by name; the names are `POLICY_NAMES` of `api/rules.py`."""
BLIND_TO_WORK = frozenset({"fifo", "backfill", "dragon"})
"""The policies that never look at what is known of the work of gangs. The simulator saves itself the estimates."""


def policy_name(policy: Policy) -> str:
    """Return the policy's name; empty for a function that is not in `POLICIES`."""
    return next((name for name, listed in POLICIES.items() if listed is policy), "")
