"""Where rounds begin: nodes by their GPUs, and all policies one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tarragon.base.resources import CPU
from tarragon.scheduling.api.decision import Decision
from tarragon.scheduling.api.rules import SchedulingRules
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.policies import POLICIES
from tarragon.scheduling.state.memory import Memory, Policy
from tests.scheduling.rounds import Rounds, gpus

STANDARD = SchedulingRules(overdue_seconds=30)
"""Nodes are reserved as soon as a gang starves: tests are shorter this way."""


def afresh(policy: Policy) -> Callable[[Snapshot], Sequence[Decision]]:
    """The policy with an empty memory."""
    return lambda snapshot: policy(snapshot, Memory())


def every_policy(test: Callable[[str], None]) -> Callable[[str], None]:
    return pytest.mark.parametrize("name", list(POLICIES))(test)


def scene(name: str, *nodes: int, rules: SchedulingRules = STANDARD, grace: float = 0) -> Rounds:
    """Nodes by their GPUs, with CPUs for all."""
    shapes = {f"n{index:02}": {**gpus(number), CPU: 8000} for index, number in enumerate(nodes)}
    return Rounds(policy=POLICIES[name], nodes=shapes, rules=rules, grace=grace)
