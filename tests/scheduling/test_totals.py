"""How much room there is in all, as it is told from round to round and tried without a copy, is what counting finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.base.resources import CPU, NVIDIA_GPU
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.model import Replica
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang
from tarragon.scheduling.cycle.preemption_simulation import AllocationTable, PreemptionSimulation
from tarragon.scheduling.cycle.shrink import ReclaimablePool
from tarragon.scheduling.cycle.victims import allocations_of
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import NodeLedger
from tarragon.scheduling.state.memory import Memory
from tests.scheduling.test_fit import SCENES

NUMBERS = st.integers(0, 5)


def counted(demand: Demand, ledger: NodeLedger) -> int:
    room = NodeLedger(ledger.nodes, ledger.table.copy(), ledger.requests).room(ledger.requests.of(demand))
    return int(np.minimum(room, demand.requested).sum())


@given(
    scene=SCENES,
    rounds=st.lists(st.lists(st.tuples(NUMBERS, st.integers(0, 8)), max_size=4), min_size=1, max_size=4),
    taken=st.lists(st.tuples(NUMBERS, st.integers(0, 2)), max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_what_is_told_of_all_questions_at_once_is_what_each_finds(
    scene: tuple[list[NodeState], list[Demand]], rounds: list[list[tuple[int, int]]], taken: list[tuple[int, int]]
) -> None:
    nodes, demands = scene
    inventory, memory = Inventory.of(nodes), Memory()
    for changes in rounds:
        there = {number % len(nodes): free for number, free in changes}
        inventory = inventory.with_states(
            [replace(inventory.states[row], free={NVIDIA_GPU: free, CPU: free}) for row, free in there.items()]
        )
        now = NodeLedger.of_free(inventory, memory.of(inventory, ()))
        for ledger in (now, now.with_releasing(), now.copy()):
            for number, amount in taken:
                ledger.reserve([(inventory.names[number % len(nodes)], {NVIDIA_GPU: amount, CPU: 1}, 1)])
                for demand in demands:
                    assert ledger.has_room(ledger.requests.of(demand), demand.requested) == (
                        counted(demand, ledger) >= demand.requested
                    )


@given(
    scene=SCENES,
    held=st.lists(st.tuples(st.integers(0, 4), NUMBERS, st.integers(0, 3), st.integers(0, 3)), max_size=8),
    owners=st.sets(st.integers(0, 4)),
)
@settings(max_examples=150, deadline=None)
def test_what_seems_enough_on_the_nodes_of_a_trial_is_enough_on_the_whole_cluster(
    scene: tuple[list[NodeState], list[Demand]], held: list[tuple[int, int, int, int]], owners: set[int]
) -> None:
    nodes, demands = scene
    ledger = NodeLedger.of_free(nodes)

    def holdings(gpus: list[int]) -> AllocationTable:
        amounts = [ledger.nodes.to_row({NVIDIA_GPU: number, CPU: number}) for number in gpus]
        return AllocationTable(
            5,
            np.array([owner for owner, _, _, _ in held], np.int64),
            np.array([row % len(nodes) for _, row, _, _ in held], np.int64),
            np.array(amounts, np.int64).reshape(len(held), len(ledger.nodes.resources)),
        )

    several = holdings([gpus for _, _, gpus, _ in held]).minus(holdings([min(gpus, less) for _, _, gpus, less in held]))
    given_back = several.ledger_without(sorted(owners), ledger)

    trial = PreemptionSimulation(demands, ledger, several)

    is_enough = all(given_back.has_room(given_back.requests.of(demand), demand.minimum) for demand in demands)
    assert trial.seems_sufficient(sorted(owners)) == is_enough


@given(
    scene=SCENES,
    held=st.lists(st.tuples(st.integers(0, 7), NUMBERS, st.integers(0, 3)), max_size=16),
    order=st.permutations(range(8)),
)
@settings(max_examples=150, deadline=None)
def test_who_has_to_give_back_is_summed_up_as_it_is_found_by_trying(
    scene: tuple[list[NodeState], list[Demand]], held: list[tuple[int, int, int]], order: list[int]
) -> None:
    nodes, demands = scene
    ledger = NodeLedger.of_free(nodes)
    amounts = np.array([ledger.nodes.to_row({NVIDIA_GPU: gpus, CPU: 1}) for _, _, gpus in held], np.int64)
    several = AllocationTable(
        8,
        np.array([owner for owner, _, _ in held], np.int64),
        np.array([row % len(nodes) for _, row, _ in held], np.int64),
        amounts.reshape(len(held), len(ledger.nodes.resources)),
    )
    trial = PreemptionSimulation(demands, ledger, several)
    enough = next((size for size in range(9) if trial.seems_sufficient(order[:size])), None)

    least = trial.sufficient_prefix_length(np.array(order))

    assert least == enough
    if least is not None:
        needed = order[:least]
        for owner in reversed(order[:least]):
            others = [other for other in needed if other != owner]
            needed = others if trial.seems_sufficient(others) else needed
        assert trial.needed_owners(np.array(order[:least], np.int64)) == needed


def test_what_was_given_up_is_not_there_for_the_next_one() -> None:
    node = NodeState(name="a", capacity={NVIDIA_GPU: 4}, free={NVIDIA_GPU: 0})
    worker = Demand(type=WORKER, resources={NVIDIA_GPU: 1}, minimum=1, requested=4, eligible_nodes=frozenset("a"))
    places = {Replica(WORKER, index): "a" for index in range(4)}
    inventory = Inventory.of([node])
    memory = Memory().of(inventory, ())
    ledger = NodeLedger.of_free(inventory, memory)
    spares = ReclaimablePool(
        [RunningGang(name="large", demands=[worker], nodes=places, is_elastic=True)], ledger.nodes, memory
    )
    two = [replace(worker, minimum=2, requested=2)]

    first, second = spares.reclaim(two, ledger), spares.reclaim(two, ledger)

    assert first is not None
    assert second is None


@given(
    rounds=st.lists(st.dictionaries(st.integers(0, 7), st.lists(NUMBERS, min_size=1, max_size=3)), max_size=6),
)
@settings(max_examples=100, deadline=None)
def test_whoever_comes_and_goes_what_is_kept_of_their_holdings_is_what_each_of_them_holds(
    rounds: list[dict[int, list[int]]],
) -> None:
    names = [f"node{number}" for number in range(6)]
    inventory = Inventory.of([NodeState(name=name, capacity={CPU: 9}, free={CPU: 9}) for name in names])
    worker = Demand(type=WORKER, resources={CPU: 1}, minimum=1, requested=3, eligible_nodes=frozenset(names))
    known: dict[int, RunningGang] = {}
    memory = Memory().of(inventory, ())
    for running in rounds:
        assignments = {
            number: {Replica(WORKER, index): names[row] for index, row in enumerate(rows)}
            for number, rows in running.items()
        }
        known = {
            number: known[number]
            if number in known and known[number].nodes == nodes
            else RunningGang(name=str(number), demands=[worker], nodes=nodes, is_elastic=False)
            for number, nodes in assignments.items()
        }
        gangs = list(known.values())

        kept = allocations_of(gangs, inventory, memory)

        for number, gang in enumerate(gangs):
            free = kept.ledger_without([number], NodeLedger.of_free(inventory)).table
            asked = [9 + list(gang.nodes.values()).count(name) for name in names]
            assert free[:, 0].tolist() == asked
