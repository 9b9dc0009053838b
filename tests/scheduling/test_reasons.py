"""What keeps a gang from starting, and what would let it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from tarragon.base.resources import NVIDIA_GPU
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import Replica
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.explain.reasons import explain_wait

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
ALL = ("a", "b", "c")


def node(name: str, gpus: int, free: int, releasing: int = 0, away: str = "") -> NodeState:
    amounts = {NVIDIA_GPU: releasing} if releasing else {}
    return NodeState(
        name=name, capacity={NVIDIA_GPU: gpus}, free={NVIDIA_GPU: free}, releasing=amounts, unavailable_reason=away
    )


def workers(number: int, each: int = 1, on: Sequence[str] = ALL) -> Sequence[Demand]:
    return [
        Demand(
            type=WORKER, resources={NVIDIA_GPU: each}, minimum=number, requested=number, eligible_nodes=frozenset(on)
        )
    ]


def runs(name: str, *nodes: str) -> RunningGang:
    places = {Replica(WORKER, index): where for index, where in enumerate(nodes)}
    return RunningGang(name=name, demands=workers(len(nodes)), nodes=places, is_elastic=False)


def picture(
    nodes: Sequence[NodeState],
    demands: Sequence[Demand],
    running: Sequence[RunningGang] = (),
    away: Sequence[NodeState] = (),
) -> Snapshot:
    mine = WaitingGang(name="mine", queued_at=NOON, demands=demands)
    return Snapshot(now=NOON, nodes=nodes, waiting=[mine], running=running, unavailable_nodes=away)


def test_the_nearest_nodes_are_told_with_what_they_lack() -> None:
    nodes = [node("a", 4, 0), node("b", 4, 3), node("c", 4, 1)]
    found = explain_wait("mine", picture(nodes, workers(1, each=4)))

    assert not found.fits_now
    assert [(one.name, one.room, one.lacking) for one in found.nodes] == [
        ("b", 0, {NVIDIA_GPU: 1}),
        ("c", 0, {NVIDIA_GPU: 3}),
        ("a", 0, {NVIDIA_GPU: 4}),
    ]


def test_enough_in_pieces_that_are_too_small_lacks_nothing_in_sum() -> None:
    nodes = [node("a", 4, 2), node("b", 4, 2)]

    assert explain_wait("mine", picture(nodes, workers(1, each=4))).lacking == {}
    assert explain_wait("mine", picture(nodes, workers(5))).lacking == {NVIDIA_GPU: 1}


def test_a_smaller_gang_that_would_start_now_is_told() -> None:
    assert explain_wait("mine", picture([node("a", 8, 3), node("b", 8, 2)], workers(8))).fitting_size == 5
    assert explain_wait("mine", picture([node("a", 8, 0)], workers(8))).fitting_size == 0


def test_the_smallest_gang_whose_end_is_enough_is_told() -> None:
    nodes = [node("a", 4, 0), node("b", 4, 0)]
    running = [runs("large", "a", "a", "a", "a", "b"), runs("tiny", "b"), runs("middle", "b", "b")]

    assert explain_wait("mine", picture(nodes, workers(2), running)).gangs_to_end == ["middle"]


def test_where_none_alone_is_enough_several_are_told_and_none_where_it_takes_too_many() -> None:
    nodes = [node("a", 8, 0)]
    pairs = [runs(f"pair-{number}", "a", "a") for number in range(4)]

    assert explain_wait("mine", picture(nodes, workers(4), pairs)).gangs_to_end == ["pair-3", "pair-2"]
    single = [runs(f"one-{number}", "a") for number in range(8)]
    assert explain_wait("mine", picture(nodes, workers(8), single)).gangs_to_end == ()


def test_pods_that_end_and_nodes_that_are_away_are_told_where_they_would_help() -> None:
    away = [node("b", 1, 1, away="is cordoned"), node("c", 4, 4, away="is cordoned")]
    found = explain_wait("mine", picture([node("a", 4, 1, releasing=2)], workers(3), away=away))

    assert found.fits_after_termination
    assert found.nodes_to_return == ["c"]


def test_nodes_that_may_not_run_it_are_counted() -> None:
    found = explain_wait("mine", picture([node("a", 4, 1), node("b", 4, 4)], workers(2, on=["a"])))

    assert (found.ineligible_nodes, [one.name for one in found.nodes]) == (1, ["a"])


def test_of_a_gang_that_only_waits_for_its_turn_it_is_told_that_there_is_room() -> None:
    assert explain_wait("mine", picture([node("a", 4, 4)], workers(2))).fits_now


def test_the_replicas_are_told_for_which_the_room_ends() -> None:
    ps = Demand(
        type=PS, is_anchor=True, resources={NVIDIA_GPU: 1}, minimum=1, requested=1, eligible_nodes=frozenset(ALL)
    )

    assert explain_wait("mine", picture([node("a", 4, 2)], [ps, *workers(2)])).type == WORKER
    assert explain_wait("mine", picture([node("a", 4, 0)], [ps, *workers(2)])).type == PS


def test_elastic_gangs_that_have_enough_above_their_minimum_are_told() -> None:
    wide = [Demand(type=WORKER, resources={NVIDIA_GPU: 1}, minimum=1, requested=4, eligible_nodes=frozenset(ALL))]
    places = {Replica(WORKER, index): "a" for index in range(4)}
    several = [
        RunningGang(name=f"elastic-{number}", demands=wide, nodes=places, is_elastic=True) for number in range(2)
    ]
    nodes = [node("a", 8, 0)]

    assert explain_wait("mine", picture(nodes, workers(3), several)).gangs_to_shrink == ["elastic-0"]
    assert explain_wait("mine", picture(nodes, workers(6), several)).gangs_to_shrink == ["elastic-0", "elastic-1"]
    assert explain_wait("mine", picture(nodes, workers(7), several)).gangs_to_shrink == ()


def test_a_gang_with_a_gap_gives_no_more_than_it_has_above_its_minimum() -> None:
    two = [Demand(type=WORKER, resources={NVIDIA_GPU: 1}, minimum=2, requested=4, eligible_nodes=frozenset(ALL))]
    places = {Replica(WORKER, index): "a" for index in (0, 2, 3)}
    gapped = [RunningGang(name="elastic", demands=two, nodes=places, is_elastic=True)]
    nodes = [node("a", 3, 0)]

    assert explain_wait("mine", picture(nodes, workers(1), gapped)).gangs_to_shrink == ["elastic"]
    assert explain_wait("mine", picture(nodes, workers(2), gapped)).gangs_to_shrink == ()
