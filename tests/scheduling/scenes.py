"""Where rounds begin: nodes by their GPUs, and all policies one after the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tarragon.base.resources import CPU
from tarragon.scheduling.api.rules import Rules
from tarragon.scheduling.policies import POLICIES
from tests.scheduling.rounds import Rounds, gpus

STANDARD = Rules()


def every_policy(test: Callable[[str], None]) -> Callable[[str], None]:
    return pytest.mark.parametrize("name", list(POLICIES))(test)


def scene(name: str, *nodes: int, rules: Rules = STANDARD, grace: float = 0) -> Rounds:
    """Nodes by their GPUs, with CPUs for all."""
    shapes = {f"n{index:02}": {**gpus(number), CPU: 8000} for index, number in enumerate(nodes)}
    return Rounds(policy=POLICIES[name], nodes=shapes, rules=rules, grace=grace)
