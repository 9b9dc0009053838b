"""DRAGON's README, sentence by sentence, and the defects of its code that are about decisions: each that is not here
stands in the table at the end with the place where it is.

A number as 4.8/6 is a row of the list of its defects, D1 to D7 are those that a replay of it showed.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.base.resources import CPU, Resources
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import CHIEF, EVALUATOR, PS
from tarragon.job.model import Replica
from tarragon.scheduling.api.decision import (
    BEHIND_OTHERS,
    INSUFFICIENT_RESOURCES,
    RESOURCES_RELEASING,
    Admit,
    Decision,
    Defer,
    Evict,
    RequeueAt,
    Resize,
)
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.policies.dragon import dragon
from tests.scheduling.rounds import NOON, Job, Rounds, gpus
from tests.scheduling.scenes import afresh

STANDARD = SchedulingRules(overdue_seconds=30)


def scene(*nodes: int, rules: SchedulingRules = STANDARD, grace: float = 0) -> Rounds:
    """Nodes by their GPUs, with CPUs for all."""
    shapes = {f"n{index}": {**gpus(number), CPU: 64000} for index, number in enumerate(nodes)}
    return Rounds(policy=dragon, nodes=shapes, rules=rules, grace=grace)


def elastic(rounds: Rounds, name: str, least: int, wish: int, most: int = 0) -> Job:
    """With one parameter server."""
    server = rounds.demand(PS, 1, each={CPU: 1000})
    return Job(name=name, demands=[server, rounds.workers(wish, least=least, most=max(wish, most))])


def rigid(rounds: Rounds, name: str, workers: int, *, each: int = 1, length: float | None = None) -> Job:
    return Job(name=name, demands=[rounds.workers(workers, each=gpus(each))], length=length)


def sizes(rounds: Rounds) -> dict[str, int]:
    return {name: rounds.size(name) for name in sorted(rounds.running)}


# Scenes of a single round


def node(name: str, number: int, *, used: int = 0, releasing: int = 0) -> NodeState:
    taken = left_of(number - used - releasing)
    return NodeState(name=name, capacity={**gpus(number), CPU: 64000}, free=taken, releasing=gpus(releasing))


def left_of(number: int) -> Resources:
    return {**gpus(number), CPU: 32000}


def worker(nodes: Sequence[NodeState], least: int, wish: int, most: int = 0, *, each: int = 1) -> Demand:
    eligible = frozenset(state.name for state in nodes)
    return Demand(
        type=WORKER, resources=gpus(each), minimum=least, requested=wish, maximum=most, eligible_nodes=eligible
    )


def server(nodes: Sequence[NodeState]) -> Demand:
    return Demand(
        type=PS,
        is_anchor=True,
        resources={CPU: 1000},
        minimum=1,
        requested=1,
        maximum=1,
        eligible_nodes=frozenset(state.name for state in nodes),
    )


def aged(name: str, *demands: Demand, waited: int = 31, priority: int = 0) -> WaitingGang:
    return WaitingGang(name=name, queued_at=NOON - dt.timedelta(seconds=waited), demands=demands, priority=priority)


def ago(seconds: int) -> dt.datetime:
    return NOON - dt.timedelta(seconds=seconds)


def runs(name: str, demands: Sequence[Demand], nodes: Mapping[Replica, str], **facts: object) -> RunningGang:
    known: dict[str, object] = {
        "admitted_at": ago(3600),
        "last_requested": {each.type: each.requested for each in demands},
        "is_elastic": True,
        **facts,
    }
    return RunningGang(name=name, demands=demands, nodes=nodes, **known)  # type: ignore[arg-type]


def workers_on(*nodes: str) -> dict[Replica, str]:
    return {Replica(WORKER, index): node for index, node in enumerate(nodes)}


def decide(
    nodes: Sequence[NodeState],
    *waiting: WaitingGang,
    running: Sequence[RunningGang] = (),
    rules: SchedulingRules = STANDARD,
) -> dict[str, Decision]:
    """By gang; the time to decide again under its own name."""
    decided = afresh(dragon)(Snapshot(now=NOON, nodes=nodes, waiting=waiting, running=running, rules=rules))
    return {"again" if isinstance(each, RequeueAt) else each.gang: each for each in decided}


def resized(decision: Decision | None) -> Resize:
    assert isinstance(decision, Resize)
    return decision


# "DRAGON tries to schedule pending jobs in the FIFO order, and ignoring the job which cannot meet its requirements."


def test_jobs_start_in_their_order_and_who_does_not_fit_is_passed() -> None:
    """4.8/5, 4.8/20, D1, D6: as many in one round as there is room for, and nobody is in the way of others."""
    rounds = scene(8)
    for name, workers in (("a", 3), ("large", 8), ("b", 3), ("c", 2), ("d", 1)):
        rounds.submit(rigid(rounds, name, workers))
        rounds.now += dt.timedelta(seconds=1)

    rounds.decide()

    assert sizes(rounds) == {"a": 3, "b": 3, "c": 2}
    assert {name: waits.code for name, waits in rounds.waits.items()} == {
        "large": INSUFFICIENT_RESOURCES,
        "d": INSUFFICIENT_RESOURCES,
    }


def test_a_gang_starts_with_as_many_as_fit_between_its_minimum_and_its_wish() -> None:
    rounds = scene(3)
    rounds.submit(elastic(rounds, "job", 1, 4))

    rounds.decide()

    assert sizes(rounds) == {"job": 3}


def test_any_set_of_replicas_is_a_gang() -> None:
    """4.8/9: chiefs, evaluators, none but workers, none but a chief."""
    rounds = scene(8)
    chief, evaluator = (rounds.demand(kind, 1, each=gpus(1)) for kind in (CHIEF, EVALUATOR))
    rounds.submit(Job(name="chief", demands=[chief]))
    rounds.submit(Job(name="all", demands=[chief, rounds.workers(2), evaluator]))
    rounds.submit(Job(name="workers", demands=[rounds.workers(2)]))

    rounds.decide()

    assert sorted(rounds.running) == ["all", "chief", "workers"]


# "If there exists some jobs which have been waiting for more than 30 seconds, pick the longest one. DRAGON will
# schedule the job if it can meet its resource requirements after scaling down running jobs."


def test_others_shrink_for_a_job_that_has_waited_for_30_seconds_and_it_starts_whole() -> None:
    rounds = scene(4, 4, grace=2)
    rounds.submit(elastic(rounds, "elastic", 1, 8))
    rounds.advance(1)
    rounds.submit(rigid(rounds, "late", 3))

    rounds.advance(29)
    assert sizes(rounds) == {"elastic": 8}
    rounds.advance(1)
    assert sizes(rounds) == {"elastic": 5}
    rounds.advance(2)

    assert sizes(rounds) == {"elastic": 5, "late": 3}


def test_the_time_is_asked_for_at_which_a_job_will_have_waited_long_enough() -> None:
    nodes = [node("a", 2, used=2)]
    decided = decide(nodes, aged("young", worker(nodes, 1, 1), waited=10))

    assert decided["again"] == RequeueAt(NOON + dt.timedelta(seconds=20))


def test_what_is_made_room_for_is_the_smallest_form_with_its_parameter_servers() -> None:
    """4.8/2: the PS needs a GPU as well here; room for the workers alone would be of no use."""
    nodes = [node("a", 4, used=4)]
    holder = runs("holder", [worker(nodes, 1, 4)], workers_on("a", "a", "a", "a"))
    needy = aged("needy", replace(worker(nodes, 1, 1), type=PS), worker(nodes, 2, 4))

    decided = decide(nodes, needy, running=[holder])

    assert resized(decided["holder"]) == Resize("holder", workers_on("a"), "made room for needy")
    assert decided["needy"] == Defer(
        "needy", RESOURCES_RELEASING, "resources are reserved for it, but terminating pods still hold them"
    )


def test_if_all_that_shrinks_is_not_enough_nobody_shrinks() -> None:
    """4.8/5, D4: giving up places of which nobody has anything is waste."""
    nodes = [node("a", 6, used=6)]
    holders = [
        runs("elastic", [worker(nodes, 1, 3)], workers_on("a", "a", "a")),
        runs("rigid", [worker(nodes, 3, 3)], workers_on("a", "a", "a")),
    ]
    decided = decide(nodes, aged("needy", worker(nodes, 3, 3)), running=holders)

    assert set(decided) == {"needy"}


def test_no_more_shrinks_than_it_takes_and_only_where_the_job_may_run() -> None:
    """4.8/6: the elastic gang on b has most to give, but b has nobody who is waited for."""
    nodes = [node("a", 4, used=3), node("b", 8, used=8)]
    here, there = worker(nodes, 1, 3), worker(nodes, 1, 8)
    holders = [
        runs("on-a", [here], workers_on("a", "a", "a")),
        runs("on-b", [there], workers_on(*["b"] * 8)),
    ]
    decided = decide(nodes, aged("needy", worker(nodes[:1], 2, 2)), running=holders)

    assert resized(decided["on-a"]).nodes == workers_on("a", "a")
    assert "on-b" not in decided


def test_whoever_has_most_above_its_minimum_gives_first() -> None:
    """4.8/6, D4: not the oldest one down to its minimum."""
    nodes = [node("a", 12, used=12)]
    holders = [
        runs("oldest", [worker(nodes, 1, 3)], workers_on("a", "a", "a"), admitted_at=ago(9000)),
        runs("richest", [worker(nodes, 1, 6)], workers_on(*["a"] * 6)),
        runs("third", [worker(nodes, 1, 3)], workers_on("a", "a", "a"), admitted_at=ago(5000)),
    ]
    decided = decide(nodes, aged("needy", worker(nodes, 5, 5)), running=holders)

    kept = {name: len(resized(decided[name]).nodes) for name in decided if name not in {"needy", "again"}}
    assert kept == {"richest": 3, "third": 2, "oldest": 2}


def test_of_equals_the_larger_part_of_its_maximum_gives_first() -> None:
    nodes = [node("a", 6, used=6)]
    holders = [
        runs("far", [worker(nodes, 1, 3, 9)], workers_on("a", "a", "a")),
        runs("full", [worker(nodes, 1, 3, 3)], workers_on("a", "a", "a")),
    ]
    decided = decide(nodes, aged("needy", worker(nodes, 1, 1)), running=holders)

    assert set(decided) - {"again"} == {"needy", "full"}


def test_the_less_urgent_shrinks_before_the_more_urgent() -> None:
    nodes = [node("a", 8, used=8)]
    holders = [
        runs("urgent", [worker(nodes, 1, 5)], workers_on(*["a"] * 5), priority=9),
        runs("plain", [worker(nodes, 1, 3)], workers_on("a", "a", "a")),
    ]
    decided = decide(nodes, aged("needy", worker(nodes, 1, 1)), running=holders)

    assert set(decided) - {"again"} == {"needy", "plain"}


def test_what_is_on_its_way_out_counts_and_nobody_shrinks_again_for_it() -> None:
    """4.8/3, 4.8/4, D4: no cascade while pods take their time to end."""
    rounds = scene(8, grace=100)
    rounds.submit(elastic(rounds, "elastic", 1, 8))
    rounds.advance(1)
    rounds.submit(rigid(rounds, "late", 2))
    rounds.advance(40)
    assert sizes(rounds) == {"elastic": 6}
    rounds.submit(rigid(rounds, "small", 1))
    rounds.advance(10)

    assert sizes(rounds) == {"elastic": 6}
    assert rounds.waits["late"].code == RESOURCES_RELEASING
    rounds.advance(200)
    assert rounds.size("late") == 2


def test_what_was_given_up_for_a_job_is_not_taken_by_one_that_came_later() -> None:
    """4.8/3: what becomes free is kept for whom it was given up."""
    nodes = [node("a", 4, used=2, releasing=1)]
    first = aged("first", worker(nodes, 2, 2), waited=40)
    decided = decide(nodes, first, aged("second", worker(nodes, 1, 1), waited=1))

    assert {name: each.code for name, each in decided.items() if isinstance(each, Defer)} == {
        "first": RESOURCES_RELEASING,
        "second": BEHIND_OTHERS,
    }


def test_several_aged_jobs_are_helped_in_their_order_in_one_round_and_each_gang_shrinks_once() -> None:
    nodes = [node("a", 8, used=8)]
    holder = runs("holder", [worker(nodes, 1, 8)], workers_on(*["a"] * 8))
    waiting = [aged(f"job{number}", worker(nodes, 3, 3), waited=60 - number) for number in range(3)]

    decided = afresh(dragon)(Snapshot(now=NOON, nodes=nodes, waiting=waiting, running=[holder]))

    assert Counter(each.gang for each in decided if isinstance(each, Resize)) == {"holder": 1}
    (smaller,) = (each for each in decided if isinstance(each, Resize))
    assert len(smaller.nodes) == 2
    codes = {each.gang: each.code for each in decided if isinstance(each, Defer)}
    assert codes == {"job0": RESOURCES_RELEASING, "job1": RESOURCES_RELEASING, "job2": INSUFFICIENT_RESOURCES}


def test_the_first_worker_a_chief_and_whoever_has_finished_or_has_no_node_never_give() -> None:
    """4.8/26, 4.8/28: a finished worker frees nothing, and taking the first one away ends the job."""
    nodes = [node("a", 9, used=9)]
    chief = replace(worker(nodes, 0, 1), type=CHIEF)
    placed = {Replica(CHIEF, 0): "a", **workers_on("a", "a", "a", "gone", "a")}
    facts = {"finished": frozenset({Replica(WORKER, 4)}), "displaced": frozenset({Replica(WORKER, 3)})}
    holder = runs("holder", [chief, worker(nodes, 0, 5)], placed, **facts)

    three = decide(nodes, aged("needy", worker(nodes, 3, 3)), running=[holder])
    two = decide(nodes, aged("needy", worker(nodes, 2, 2)), running=[holder])

    assert "holder" not in three
    gone = placed.keys() - resized(two["holder"]).nodes.keys()
    assert gone == {Replica(WORKER, 1), Replica(WORKER, 2)}


def test_a_gang_that_is_started_again_for_each_size_does_not_shrink_for_others() -> None:
    """4.8/24."""
    nodes = [node("a", 4, used=4)]
    holder = runs("holder", [worker(nodes, 1, 4)], workers_on("a", "a", "a", "a"), resizes_by_restart=True)

    assert "holder" not in decide(nodes, aged("needy", worker(nodes, 2, 2)), running=[holder])


def test_a_shrink_that_fails_blocks_nobody_and_growth_goes_on_beside_it() -> None:
    """4.8/5, D1: the giant needs all of n0 and n1, on which a rigid job runs; n2 is nobody's."""
    rounds = scene(4, 4, 8)
    rounds.submit(rigid(rounds, "old", 4))
    rounds.advance(1)
    server = replace(rounds.demand(PS, 1, each={CPU: 1000}), eligible_nodes=frozenset({"n2"}))
    workers = replace(rounds.workers(2, least=1, most=4), eligible_nodes=frozenset({"n2"}))
    rounds.submit(Job(name="elastic", demands=[server, workers]))
    pair = frozenset({"n0", "n1"})
    giant = Job(name="giant", demands=[replace(rounds.workers(2, each=gpus(4)), eligible_nodes=pair)])
    rounds.submit(giant)
    rounds.advance(70)
    rounds.submit(rigid(rounds, "small", 2))
    rounds.advance(1)

    assert rounds.waits["giant"].message.endswith("resources that become free are reserved for this job")
    assert sizes(rounds) == {"elastic": 4, "old": 4, "small": 2}
    assert set(rounds.running["small"].nodes.values()) == {"n2"}


def test_an_aged_job_that_no_shrinking_helps_is_not_passed_for_ever() -> None:
    """4.8/17: a stream of small jobs, of which there is always another one."""
    rounds, dice = scene(4, 4), random.Random(7)
    for number in range(8):
        rounds.submit(rigid(rounds, f"s{number:03}", 1, length=dice.randint(20, 90)))
    rounds.advance(1)
    rounds.submit(rigid(rounds, "big", 8, length=10))
    for number in range(8, 120):
        if "big" in rounds.running:
            break
        rounds.submit(rigid(rounds, f"s{number:03}", 1, length=dice.randint(20, 90)))
        rounds.advance(5)

    assert "big" in rounds.running


# "If there exists some idle resources and DRAGON didn't perform any scheduling and scaling actions for more than one
# minute, DRAGON tries to scale up running jobs."


def test_after_a_minute_without_any_action_gangs_grow_to_their_maximum() -> None:
    rounds = scene(8)
    rounds.submit(elastic(rounds, "a", 1, 2, 4))
    rounds.submit(elastic(rounds, "b", 1, 1, 6))

    rounds.advance(59)
    assert sizes(rounds) == {"a": 2, "b": 1}
    rounds.advance(1)

    assert sizes(rounds) == {"a": 3, "b": 5}
    assert rounds.now == NOON + dt.timedelta(seconds=60), "the policy has asked for that moment"


def test_any_start_or_resize_begins_the_minute_anew() -> None:
    nodes = [node("a", 8, used=2)]
    first = runs("first", [worker(nodes, 1, 1, 4)], workers_on("a"), admitted_at=ago(70))
    other = runs("other", [worker(nodes, 1, 1, 1)], workers_on("a"), admitted_at=ago(20))

    assert decide(nodes, running=[first, other]) == {"again": RequeueAt(NOON + dt.timedelta(seconds=40))}


def test_starts_that_never_stop_keep_a_gang_from_growing_for_two_minutes_only() -> None:
    nodes = [node("a", 8, used=2)]
    first = runs("first", [worker(nodes, 1, 1, 4)], workers_on("a"), admitted_at=ago(119))
    other = runs("other", [worker(nodes, 1, 1, 1)], workers_on("a"), admitted_at=ago(20))

    assert decide(nodes, running=[first, other]) == {"again": RequeueAt(NOON + dt.timedelta(seconds=1))}
    longer = replace(first, admitted_at=ago(120))

    assert len(resized(decide(nodes, running=[longer, other])["first"]).nodes) == 4


def test_growth_fills_like_water_the_smallest_part_of_its_maximum_first() -> None:
    """4.8/8, D3: not the first gang all of it."""
    nodes = [node("a", 10, used=8)]
    holders = [
        runs("a", [worker(nodes, 1, 4, 8)], workers_on("a", "a", "a", "a")),
        runs("b", [worker(nodes, 1, 1, 4)], workers_on("a")),
        runs("c", [worker(nodes, 1, 1, 4)], workers_on("a")),
    ]
    decided = decide(nodes, running=holders)

    assert {name: len(resized(each).nodes) for name, each in decided.items()} == {"b": 2, "c": 2}
    assert {resized(each).reason for each in decided.values()} == {"nodes are idle"}


def test_growth_never_passes_the_maximum_on_however_many_nodes() -> None:
    """4.8/8, 4.8/10, D2."""
    nodes = [node("a", 4, used=2), node("b", 4), node("c", 4)]
    holder = runs("job", [worker(nodes, 1, 2, 5)], workers_on("a", "a"))

    assert sorted(resized(decide(nodes, running=[holder])["job"]).nodes) == [
        Replica(WORKER, index) for index in range(5)
    ]


def test_one_that_does_not_fit_anywhere_keeps_nobody_from_growing() -> None:
    """4.8/8: the head of the line that fits no node was the end of all growth."""
    nodes = [node("a", 4, used=3)]
    holders = [
        runs("huge", [worker(nodes, 1, 1, 8, each=2)], workers_on("a")),
        runs("small", [worker(nodes, 1, 1, 2)], workers_on("a")),
    ]
    assert set(decide(nodes, running=holders)) == {"small"}


def test_what_a_waiting_job_could_use_is_left_to_it() -> None:
    """4.8/8: the queue's need goes first."""
    nodes = [node("a", 4, used=2), node("b", 8, used=8)]
    holder = runs("job", [worker(nodes, 1, 2, 4)], workers_on("a", "a"))
    young = aged("young", worker(nodes, 4, 4), waited=5)

    assert "job" not in decide(nodes, young, running=[holder])


def test_growth_goes_on_where_the_waiting_job_may_not_run() -> None:
    nodes = [node("a", 4, used=2), node("b", 8, used=8)]
    holder = runs("job", [worker(nodes, 1, 2, 4)], workers_on("a", "a"))
    young = aged("young", worker(nodes[1:], 4, 4), waited=5)

    assert len(resized(decide(nodes, young, running=[holder])["job"]).nodes) == 4


def test_a_job_that_never_fits_or_waits_for_its_quota_keeps_nobody_from_growing() -> None:
    nodes = [node("a", 4, used=2)]
    holder = runs("job", [worker(nodes, 1, 2, 4)], workers_on("a", "a"))
    giant = aged("giant", worker(nodes, 5, 5), waited=5)
    poor = replace(aged("poor", worker(nodes, 1, 1), waited=5), queue="poor")
    rules = SchedulingRules(queues={"poor": QueueRules(quota=gpus(0))})

    decided = decide(nodes, giant, poor, running=[holder], rules=rules)

    assert len(resized(decided["job"]).nodes) == 4


def test_a_gang_keeps_its_size_for_a_while_after_it_was_changed() -> None:
    """4.8/18: no flapping."""
    nodes = [node("a", 6, used=2)]
    rules = SchedulingRules(idle_seconds=10, cool_down_seconds=60)
    fresh = runs("fresh", [worker(nodes, 1, 1, 3)], workers_on("a"), resized_at=ago(20))
    other = runs("other", [worker(nodes, 1, 1, 2)], workers_on("a"))

    decided = decide(nodes, running=[fresh, other], rules=rules)

    assert set(decided) == {"other", "again"}
    assert decided["again"] == RequeueAt(NOON + dt.timedelta(seconds=40))


def test_who_wishes_more_gets_it_at_once_and_no_more_than_that() -> None:
    nodes = [node("a", 8, used=2)]
    facts = {"last_requested": {WORKER: 2}, "admitted_at": ago(5), "resized_at": ago(1)}
    holder = runs("job", [worker(nodes, 1, 4, 8)], workers_on("a", "a"), **facts)

    grown = resized(decide(nodes, running=[holder])["job"])

    assert (len(grown.nodes), grown.reason) == (4, "as requested")


def test_who_wishes_less_loses_the_lonely_ones_at_once_and_keeps_its_first_worker() -> None:
    nodes = [node("a", 4, used=4), node("b", 4, used=4)]
    placed = {Replica(PS, 0): "a", **workers_on("b", "a", "b", "a")}
    holder = runs("job", [server(nodes), worker(nodes, 1, 2, 4)], placed, last_requested={WORKER: 4})

    shrunk = resized(decide(nodes, running=[holder])["job"])

    assert shrunk.nodes == {Replica(PS, 0): "a", Replica(WORKER, 0): "b", Replica(WORKER, 1): "a"}


def test_a_gang_with_a_gap_that_is_wished_smaller_is_never_below_its_minimum() -> None:
    nodes = [node("a", 4, used=2)]
    placed = {Replica(WORKER, 0): "a", Replica(WORKER, 3): "a"}
    holder = runs("job", [worker(nodes, 2, 2, 4)], placed, last_requested={WORKER: 4}, admitted_at=ago(1))

    assert "job" not in decide(nodes, running=[holder])


def test_a_gang_that_is_started_again_for_it_grows_wholly_and_only_for_much() -> None:
    """4.8/24."""
    nodes = [node("a", 12, used=8)]
    little = runs("little", [worker(nodes, 6, 7)], workers_on(*["a"] * 6), resizes_by_restart=True)
    much = runs("much", [worker(nodes, 2, 4)], workers_on("a", "a"), resizes_by_restart=True)
    too_much = runs("too-much", [worker(nodes, 2, 9)], workers_on("a", "a"), resizes_by_restart=True)

    assert set(decide(nodes, running=[little, much, too_much])) == {"much"}


# "DRAGON prefers to schedule all replicas within one node …", "… terminates the lonely replicas first", "… schedule the
# new replicas to where the parameter server located."


def test_a_whole_job_is_on_one_node_and_of_these_on_the_fullest() -> None:
    """4.8/7, 4.8/22, D5: neither the first that comes, nor one at random."""
    nodes = [node("a", 8), node("b", 8, used=4), node("c", 8, used=6)]
    place = decide(nodes, aged("job", server(nodes), worker(nodes, 4, 4)))["job"]

    assert isinstance(place, Admit)
    assert set(place.nodes.values()) == {"b"}


def test_lonely_replicas_go_first_and_of_these_the_highest_index() -> None:
    nodes = [node("a", 4, used=4), node("b", 4, used=4)]
    placed = {Replica(PS, 0): "a", **workers_on("a", "b", "b", "a", "a")}
    holder = runs("job", [server(nodes), worker(nodes, 1, 5)], placed)
    everywhere = aged("needy", worker(nodes, 1, 1))

    gone = placed.keys() - resized(decide(nodes, everywhere, running=[holder])["job"]).nodes.keys()

    assert gone == {Replica(WORKER, 2)}


def test_new_replicas_go_beside_the_parameter_server_first() -> None:
    nodes = [node("a", 4, used=2), node("b", 8, used=1)]
    placed = {Replica(PS, 0): "a", **workers_on("a", "b")}
    holder = runs("job", [server(nodes), worker(nodes, 1, 2, 5)], placed)

    grown = resized(decide(nodes, running=[holder])["job"]).nodes

    assert {replica.index: node for replica, node in grown.items() if replica.type == WORKER} == {
        0: "a", 1: "b", 2: "a", 3: "a", 4: "b"
    }  # fmt: skip


# Nodes that go


def test_who_lost_a_node_gets_a_place_before_anybody_starts() -> None:
    nodes = [node("a", 2, used=1)]
    placed = workers_on("a", "gone")
    lost = runs("lost", [worker(nodes, 2, 2)], placed, displaced=frozenset({Replica(WORKER, 1)}))
    decided = decide(nodes, aged("small", worker(nodes, 1, 1)), running=[lost])

    assert resized(decided["lost"]).nodes == workers_on("a", "a")
    assert isinstance(decided["small"], Defer)


def test_others_shrink_at_once_for_what_a_gang_lost_and_can_not_do_without() -> None:
    nodes = [node("a", 4, used=4)]
    lost = runs("lost", [worker(nodes, 1, 1, each=2)], workers_on("gone"), displaced=frozenset({Replica(WORKER, 0)}))
    other = runs("other", [worker(nodes, 1, 4)], workers_on("a", "a", "a", "a"))
    decided = decide(nodes, running=[lost, other])

    assert len(resized(decided["other"]).nodes) == 2


def test_small_jobs_do_not_take_what_one_that_lost_a_node_needs() -> None:
    nodes = [node("a", 4, used=2)]
    lost = runs("lost", [worker(nodes, 1, 1, each=4)], workers_on("gone"), displaced=frozenset({Replica(WORKER, 0)}))
    other = runs("other", [worker(nodes, 2, 2)], workers_on("a", "a"), is_elastic=False)
    decided = decide(nodes, aged("small", worker(nodes, 1, 1), waited=1), running=[lost, other])

    assert isinstance(decided["small"], Defer)


# More urgent ones


def test_for_an_urgent_job_the_less_urgent_shrink_at_once_before_any_is_evicted() -> None:
    """D7: only who is more urgent takes what others need at least."""
    nodes = [node("a", 6, used=6)]
    holders = [
        runs("elastic", [worker(nodes, 1, 4)], workers_on("a", "a", "a", "a")),
        runs("rigid", [worker(nodes, 2, 2)], workers_on("a", "a")),
    ]
    shrunk = decide(nodes, aged("urgent", worker(nodes, 2, 2), waited=0, priority=9), running=holders)
    evicted = decide(nodes, aged("urgent", worker(nodes, 5, 5), waited=0, priority=9), running=holders)

    assert len(resized(shrunk["elastic"]).nodes) == 2
    assert "rigid" not in shrunk
    assert any(isinstance(each, Evict) for each in evicted.values())


# Over time

JOBS = st.lists(
    st.tuples(
        st.integers(1, 3), st.integers(0, 3), st.integers(0, 4), st.integers(20, 400), st.integers(0, 90)
    ),
    min_size=1,
    max_size=8,
)  # fmt: skip


class Watched(Rounds):
    """Remembers when each gang was resized, and why."""

    def decide(self) -> Sequence[Admit | Resize | Evict | Defer]:
        before = {name: run.resized for name, run in self.running.items()}
        about = super().decide()
        for each in about:
            if isinstance(each, Resize) and each.reason == "nodes are idle":
                last = before[each.gang]
                cool = dt.timedelta(seconds=self.rules.cool_down_seconds)
                assert last is None or self.now >= last + cool, f"{each.gang} flaps"
        return about


@settings(max_examples=30, deadline=None)
@given(jobs=JOBS, nodes=st.lists(st.integers(1, 6), min_size=1, max_size=4), grace=st.sampled_from([0, 5]))
def test_sizes_stay_in_bounds_without_flapping_idle_nodes_are_used_and_all_end(
    jobs: list[tuple[int, int, int, int, int]], nodes: list[int], grace: float
) -> None:
    shapes = {f"n{index}": {**gpus(number), CPU: 64000} for index, number in enumerate(nodes)}
    rounds = Watched(policy=dragon, nodes=shapes, grace=grace)
    for number, (least, more, idle, length, after) in enumerate(jobs):
        if least <= sum(nodes):
            job = elastic(rounds, f"j{number}", least, least + more, least + more + idle)
            rounds.submit(replace(job, length=length))
        rounds.advance(after)
    rounds.advance(200)
    idle_since = max([run.resized or run.admitted for run in rounds.running.values()], default=rounds.now)
    if not rounds.waiting and rounds.now - idle_since > dt.timedelta(seconds=60):
        free = sum(state.free.get("nvidia.com/gpu", 0) for state in rounds.snapshot().nodes)
        hungry = [name for name, run in rounds.running.items() if rounds.size(name) < run.job.demands[1].maximum]
        assert not (free and hungry), "nodes are idle, and somebody could use them"
    rounds.advance(8 * 500)

    assert not rounds.waiting
    assert not rounds.running


# The rows of 4.8 that are not about decisions, and where they are held:
#  1 what limits, init containers and overhead ask       tests/kube/scheduling
# 11 the time since which a job queues                    tests/operator/test_queueing.py
# 12 a waiting job that is deleted                        tests/operator/test_admission.py
# 13 nothing is lost with the operator                    tests/operator/test_operator.py, test_elastic.py
# 14 what is over stays over                              tests/plan/test_finish_and_suspend.py
# 15 the predicates of kube-scheduler                     tests/plan/test_topology.py, tests/real/test_predicates.py
# 19 a word before a replica goes                         tests/operator/test_elastic.py
# 23 an error of one job, or of a policy                  tests/operator/test_codes.py
# 25 writes are patches                                   tests/operator/test_admission.py
# 27 a name is not used while its old pod is there        tests/operator/test_elastic.py
# 29 whose end is the end of the job                      tests/plan/test_resizes.py, test_graceful_eviction.py
# 16 and 21 are about parts of GPUs, which there are none of yet.
