"""Who gives way to whom."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.scheduling.api.decision import RESOURCES_RELEASING, Evict
from tarragon.scheduling.api.rules import SchedulingRules
from tarragon.scheduling.cycle.victims import allocations_of, searches_per_cycle
from tarragon.scheduling.placement.fit import is_feasible
from tarragon.scheduling.policies import POLICIES
from tarragon.scheduling.state.ledger import NodeLedger
from tarragon.scheduling.state.memory import Memory
from tests.scheduling.rounds import Job, gpus
from tests.scheduling.scenes import every_policy, scene


@every_policy
def test_a_gang_of_higher_priority_takes_the_places_of_the_fewest_youngest_and_least_urgent(name: str) -> None:
    rounds = scene(name, 2, 2, 2, 2, grace=10)
    for number, priority in enumerate([1, 0, 0, 0]):
        rounds.submit(Job(name=f"job{number}", demands=[rounds.workers(1, each=gpus(2))], priority=priority))
        rounds.advance(1)
    rounds.submit(Job(name="urgent", demands=[rounds.workers(2, each=gpus(2))], priority=5, length=30))

    rounds.advance(1)
    assert sorted(rounds.running) == ["job0", "job1"]
    assert rounds.waits["urgent"].code == RESOURCES_RELEASING
    rounds.advance(10)
    assert sorted(rounds.running) == ["job0", "job1", "urgent"]
    rounds.advance(30)

    assert sorted(rounds.running) == ["job0", "job1", "job2", "job3"]


@every_policy
def test_elastic_gangs_of_lower_priority_shrink_before_anybody_is_evicted(name: str) -> None:
    rounds = scene(name, 4, 2, grace=10)
    rounds.submit(Job(name="rigid", demands=[rounds.workers(2)]))
    rounds.advance(1)
    rounds.submit(Job(name="elastic", demands=[rounds.workers(4, least=1)]))
    rounds.advance(1)
    rounds.submit(Job(name="urgent", demands=[rounds.workers(2)], priority=5, length=30))

    rounds.advance(1)
    assert sorted(rounds.running) == ["elastic", "rigid"]
    assert rounds.size("elastic") == 2, "no more than it takes"
    rounds.advance(10)

    assert sorted(rounds.running) == ["elastic", "rigid", "urgent"]


@every_policy
def test_nobody_is_preempted_where_that_does_not_help(name: str) -> None:
    rounds = scene(name, 2, 2)
    rounds.submit(Job(name="low", demands=[rounds.workers(2)]))
    rounds.submit(Job(name="equal", demands=[rounds.workers(2)], priority=5))
    rounds.advance(1)
    rounds.submit(Job(name="urgent", demands=[rounds.workers(4)], priority=5))
    rounds.submit(Job(name="meek", demands=[rounds.workers(2)], priority=9, preempts=False))
    rounds.advance(1)

    assert sorted(rounds.running) == ["equal", "low"]


@settings(max_examples=60, deadline=None)
@given(
    nodes=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    jobs=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=10),
    wanted=st.tuples(st.integers(1, 6), st.integers(1, 4)),
)
def test_each_gang_that_is_evicted_had_to_be(
    nodes: list[int], jobs: list[tuple[int, int, int]], wanted: tuple[int, int]
) -> None:
    rounds = scene("fifo", *nodes, rules=SchedulingRules(is_preemption_enabled=False))
    for number, (workers, each, priority) in enumerate(jobs):
        demand = rounds.workers(workers, each=gpus(each))
        rounds.submit(Job(name=f"job{number}", demands=[demand], priority=priority))
        rounds.advance(1)
    rounds.waiting.clear()
    demands = [rounds.workers(wanted[0], each=gpus(wanted[1]))]
    rounds.submit(Job(name="urgent", demands=demands, priority=2))
    seen = replace(rounds.snapshot(), rules=SchedulingRules())

    evicted = [decision.gang for decision in POLICIES["fifo"](seen, Memory()) if isinstance(decision, Evict)]

    numbers = [number for number, gang in enumerate(seen.running) if gang.name in evicted]
    assert all(seen.running[number].priority < 2 for number in numbers)
    ledger = NodeLedger.of_free(seen.nodes).with_releasing()
    held = allocations_of(seen.running, ledger.nodes, Memory().of(ledger.nodes, ()))
    assert not numbers or is_feasible(demands, held.ledger_without(numbers, ledger))
    for spared in numbers:
        others = [number for number in numbers if number != spared]
        assert not is_feasible(demands, held.ledger_without(others, ledger)), f"{seen.running[spared].name} for nothing"


@every_policy
def test_whoever_runs_the_cluster_may_forbid_preemption(name: str) -> None:
    rounds = scene(name, 2, rules=SchedulingRules(is_preemption_enabled=False))
    rounds.submit(Job(name="low", demands=[rounds.workers(2)]))
    rounds.advance(1)
    rounds.submit(Job(name="urgent", demands=[rounds.workers(2)], priority=9))
    rounds.advance(1)

    assert list(rounds.running) == ["low"]


@every_policy
def test_where_shrinking_alone_is_too_little_the_least_urgent_end_and_the_others_only_shrink(name: str) -> None:
    """Nobody is evicted whose end another, less urgent one would spare."""
    rounds = scene(name, 4, 4, 4, grace=10)
    rounds.submit(Job(name="low", demands=[rounds.workers(4)]))
    rounds.submit(Job(name="elastic", demands=[rounds.workers(6, least=2)], priority=100))
    rounds.advance(1)
    rounds.submit(Job(name="urgent", demands=[rounds.workers(8)], priority=1000, length=30))

    rounds.advance(1)
    assert sorted(rounds.running) == ["elastic"]
    assert rounds.size("elastic") == 4, "no more than it takes"
    rounds.advance(10)

    assert sorted(rounds.running) == ["elastic", "urgent"]
    assert rounds.size("elastic") == 4


@pytest.mark.parametrize(("nodes", "searches"), [(0, 4), (1_250, 4), (1_251, 3), (2_500, 2), (5_000, 1), (20_000, 1)])
def test_on_a_large_cluster_fewer_gangs_take_from_others_in_one_cycle_but_always_one(nodes: int, searches: int) -> None:
    assert searches_per_cycle(4, nodes) == searches
