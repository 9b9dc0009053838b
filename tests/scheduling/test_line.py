"""The line of those that wait, as it is kept from round to round."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.scheduling.actions.queue_order import in_queue_order
from tarragon.scheduling.api.decision import Defer
from tarragon.scheduling.api.snapshot import WaitingGang
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle
from tarragon.scheduling.policies import POLICIES
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.memory import Memory
from tests.scheduling.rounds import NOON, Job
from tests.scheduling.scenes import every_policy, scene


@given(
    rounds=st.lists(
        st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3), st.sampled_from([0, 0, 5])), max_size=60), max_size=4
    ),
)
@settings(max_examples=60, deadline=None)
def test_whoever_comes_and_goes_the_line_is_in_order(rounds: list[list[tuple[int, int, int]]]) -> None:
    rounds_ = scene("fifo", 4)
    seen = replace(rounds_.snapshot(), nodes=Inventory.of(rounds_.snapshot().nodes))
    demands = [rounds_.workers(2)]
    waiting: dict[str, WaitingGang] = {}
    memory = Memory()
    for coming in rounds:
        waiting = {name: gang for name, gang in waiting.items() if int(name) % 7}
        for number, ago, priority in coming:
            queued = NOON - dt.timedelta(seconds=ago)
            waiting[str(number)] = WaitingGang(name=str(number), queued_at=queued, demands=demands, priority=priority)

        line = [
            standing.gang
            for standing in in_queue_order(SchedulingCycle(replace(seen, waiting=tuple(waiting.values())), memory))
        ]

        assert line == sorted(waiting.values(), key=lambda gang: gang.sort_key)


@every_policy
def test_who_is_told_the_same_again_is_told_it_by_the_same_object(name: str) -> None:
    rounds = scene(name, 4)
    for number in range(3):
        rounds.submit(Job(name=f"job{number}", demands=[rounds.workers(4)]))
    seen = replace(rounds.snapshot(), nodes=Inventory.of(rounds.snapshot().nodes))

    memory = Memory()

    first, second = ([one for one in POLICIES[name](seen, memory) if isinstance(one, Defer)] for _ in range(2))

    assert len(first) == 2
    assert all(one is other for one, other in zip(first, second, strict=True))
