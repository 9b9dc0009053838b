"""Amounts that no machine has: nobody gets them, and they are in nobody else's way."""

from __future__ import annotations

from tarragon.base.resources import MEMORY
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.scheduling.api.decision import INSUFFICIENT_RESOURCES, NEVER_FITS, Admit, Defer
from tarragon.scheduling.api.snapshot import NodeState
from tarragon.scheduling.policies import POLICIES
from tarragon.scheduling.state.inventory import Inventory
from tests.scheduling.rounds import Job, Rounds, gpus
from tests.scheduling.scenes import every_policy, scene

EXABYTE, TEBIBYTE = 10**18 * 1000, 2**40 * 1000


@every_policy
def test_a_gang_that_asks_for_exabytes_is_told_so_and_the_others_start(name: str) -> None:
    made = scene(name, 8)
    made.submit(Job(name="huge", demands=[made.workers(1, each={MEMORY: EXABYTE})]))
    made.submit(Job(name="small", demands=[made.workers(1)]))

    huge, small = sorted(made.decide(), key=lambda decision: decision.gang)

    assert isinstance(small, Admit)
    assert isinstance(huge, Defer)
    assert huge.code == NEVER_FITS
    assert "no node is large enough for one worker" in huge.message


@every_policy
def test_a_node_that_says_it_has_exabytes_takes_gangs_like_any_other(name: str) -> None:
    made = Rounds(policy=POLICIES[name], nodes={"n": {**gpus(2), MEMORY: EXABYTE}})
    made.submit(Job(name="small", demands=[made.workers(2, each={**gpus(1), MEMORY: TEBIBYTE})]))

    (start,) = made.decide()

    assert isinstance(start, Admit)


@every_policy
def test_a_gang_that_asks_for_more_in_all_than_numbers_hold_gets_no_more_than_there_is(name: str) -> None:
    memory = 2 * TEBIBYTE
    made = Rounds(policy=POLICIES[name], nodes={f"n{index:04}": {**gpus(1), MEMORY: memory} for index in range(4300)})
    wide = [made.demand(PS, 1, each=gpus(1)), made.workers(4300, each={MEMORY: memory})]
    made.submit(Job(name="wide", demands=wide))

    (decision,) = made.decide()

    assert isinstance(decision, Admit)
    assert len(set(decision.nodes.values())) == len(made.nodes)

    made.submit(Job(name="next", demands=wide))
    (wait,) = made.decide()
    assert isinstance(wait, Defer)
    assert wait.code == INSUFFICIENT_RESOURCES


def test_a_node_that_has_more_than_before_is_weighed_as_if_it_had_always_had_it() -> None:
    def nodes(amount: int) -> list[NodeState]:
        return [NodeState(name=name, capacity=gpus(amount), free=gpus(amount)) for name in "ab"]

    grown, new = Inventory.of(nodes(1)).with_states(nodes(8)), Inventory.of(nodes(8))

    assert grown.free_scores(grown.free).tolist() == new.free_scores(new.free).tolist()
