"""Where shares of GPUs waste least: what parts of a GPU are worth, and which node and which GPU a replica takes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.base.resources import CPU
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.scheduling.api.gpu_shares import VgpuShare
from tarragon.scheduling.policies import POLICIES
from tarragon.scheduling.state.cutting_stock import GRID, part_values
from tests.scheduling.rounds import GIB, Job, Rounds, gpus, shared_gpus, with_share


def test_half_a_gpu_is_worth_a_third_where_all_ask_for_a_third() -> None:
    values = part_values({33: 10})

    assert np.allclose(values[[0, 32, 33, 50, 66, 99, 100]], [0, 0, 1 / 3, 1 / 3, 2 / 3, 1, 1])


def test_without_requests_a_part_is_worth_its_size() -> None:
    assert np.allclose(part_values({}), np.arange(GRID + 1) / GRID)


def test_a_size_that_wastes_the_rest_of_its_gpu_is_worth_all_of_it() -> None:
    values = part_values({80: 5, 50: 20})

    assert values[80] == values[100] == 1
    assert values[50] == 0.5


@settings(max_examples=100, deadline=None)
@given(counts=st.dictionaries(st.integers(1, GRID - 1), st.integers(1, 50), max_size=8))
def test_more_of_a_gpu_is_never_worth_less_and_no_part_more_than_all(counts: dict[int, int]) -> None:
    values = part_values(counts)

    assert (np.diff(values) >= -1e-9).all()
    assert values.min() >= 0
    assert values.max() <= 1


def test_a_share_leaves_the_cpus_of_a_node_to_the_gpus_that_need_them() -> None:
    """Two nodes have a GPU each, one of them hardly any CPUs, which is where the share that needs few belongs."""
    nodes = {"n0": {**shared_gpus(1), CPU: 16000}, "n1": {**shared_gpus(1), CPU: 2000}}
    rounds = Rounds(policy=POLICIES["backfill"], nodes=nodes)
    rounds.submit(Job(name="a", demands=[with_share(rounds.demand(WORKER, 1, each={CPU: 1000}), VgpuShare(500, GIB))]))
    rounds.submit(Job(name="b", demands=[rounds.workers(1, each={**gpus(1), CPU: 12000})]))
    rounds.decide()

    assert set(rounds.running["a"].nodes.values()) == {"n1/0"}
    assert set(rounds.running["b"].nodes.values()) == {"n0"}


def test_shares_go_to_nodes_that_cannot_hold_the_largest_request_any_more() -> None:
    nodes = {f"n{number}": {**shared_gpus(4), CPU: 64000} for number in range(2)}
    rounds = Rounds(policy=POLICIES["backfill"], nodes=nodes)
    rounds.submit(Job(name="one", demands=[rounds.workers(1, each=gpus(1))]))
    rounds.submit(Job(name="share", demands=[with_share(rounds.demand(WORKER, 1, each={}), VgpuShare(300, GIB))]))
    rounds.submit(Job(name="whole node", demands=[rounds.workers(1, each=gpus(4))]))
    rounds.decide()

    assert set(rounds.running) == {"one", "share", "whole node"}
