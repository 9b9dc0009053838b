"""What all policies promise, seen over rounds; `rounds` checks each decision as it happens."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.base.resources import CPU
from tarragon.scheduling.decision import (
    BEHIND_OTHERS,
    INSUFFICIENT_RESOURCES,
    QUOTA_EXCEEDED,
    RESOURCES_RELEASING,
    Evict,
)
from tarragon.scheduling.fit import could_fit
from tarragon.scheduling.ledger import Ledger
from tarragon.scheduling.needed import Holders
from tarragon.scheduling.policies import POLICIES
from tarragon.scheduling.rules import Queue, Rules
from tests.scheduling.rounds import PS, Job, Rounds, gpus

STANDARD = Rules()
RULES = Rules(is_fair=True, queues={"a": Queue(weight=2, quota=gpus(6)), "b": Queue(quota={**gpus(9), CPU: 5000})})
JOBS = st.lists(
    st.fixed_dictionaries(
        {
            "least": st.integers(0, 4),
            "more": st.integers(0, 4),
            "idle": st.integers(0, 3),
            "each": st.integers(1, 3),
            "servers": st.integers(0, 2),
            "length": st.integers(1, 90),
            "priority": st.sampled_from([0, 0, 0, 5, 10]),
            "queue": st.sampled_from(["a", "b", "c"]),
            "preempts": st.booleans(),
            "after": st.integers(0, 40),
        }
    ),
    max_size=9,
)
NODES = st.lists(st.integers(0, 8), min_size=1, max_size=5)


def every_policy(test: Callable[[str], None]) -> Callable[[str], None]:
    return pytest.mark.parametrize("name", list(POLICIES))(test)


def scene(name: str, *nodes: int, rules: Rules = STANDARD, grace: float = 0) -> Rounds:
    """Nodes by their GPUs, with CPUs for all."""
    shapes = {f"n{index:02}": {**gpus(number), CPU: 8000} for index, number in enumerate(nodes)}
    return Rounds(policy=POLICIES[name], nodes=shapes, rules=rules, grace=grace)


def job_of(rounds: Rounds, name: str, facts: dict[str, int]) -> Job:
    least, wish = facts["least"], facts["least"] + facts["more"]
    workers = rounds.workers(wish, least=least, most=wish + facts["idle"], each=gpus(facts["each"]))
    servers = rounds.demand(PS, facts["servers"], each={CPU: 1000})
    return Job(
        name=name,
        demands=[servers, workers],
        length=facts["length"],
        priority=facts["priority"],
        queue=str(facts["queue"]),
        preempts=bool(facts["preempts"]),
    )


@every_policy
@settings(max_examples=20, deadline=None)
@given(nodes=NODES, jobs=JOBS, grace=st.sampled_from([0, 0, 7]), rules=st.sampled_from([STANDARD, RULES]))
def test_whatever_comes_no_round_breaks_a_promise(
    name: str, nodes: list[int], jobs: list[dict[str, int]], grace: int, rules: Rules
) -> None:
    rounds = scene(name, *nodes, rules=rules, grace=grace)

    for number, facts in enumerate(jobs):
        rounds.submit(job_of(rounds, f"job{number}", facts))
        rounds.advance(facts["after"])
    rounds.advance(3000)

    assert not rounds.running
    waits = {waits.code for waits in rounds.waits.values()}
    assert waits <= {"NeverFits", QUOTA_EXCEEDED}, "on an empty cluster nobody waits for others"


@every_policy
@settings(max_examples=12, deadline=None)
@given(nodes=NODES, jobs=JOBS, seed=st.integers(0, 9))
def test_the_order_of_what_it_is_shown_changes_no_decision(
    name: str, nodes: list[int], jobs: list[dict[str, int]], seed: int
) -> None:
    rounds = scene(name, *nodes, rules=RULES, grace=5)
    for number, facts in enumerate(jobs):
        rounds.submit(job_of(rounds, f"job{number}", facts))
        rounds.advance(facts["after"])
    seen, dice = rounds.snapshot(), random.Random(seed)
    shuffled = replace(
        seen,
        waiting=dice.sample(seen.waiting, len(seen.waiting)),
        running=dice.sample(seen.running, len(seen.running)),
    )

    policy = POLICIES[name]

    assert policy(seen) == policy(seen) == policy(shuffled)


@every_policy
def test_two_gangs_of_48_on_64_gpus_run_one_after_the_other(name: str) -> None:
    rounds = scene(name, *[4] * 16)
    rounds.submit(Job(name="one", demands=[rounds.workers(48)], length=100))
    rounds.submit(Job(name="two", demands=[rounds.workers(48)], length=100))

    rounds.advance(99)
    assert list(rounds.running) == ["one"]
    rounds.advance(101)

    assert rounds.ended == ["one", "two"]


@every_policy
@settings(max_examples=10, deadline=None)
@given(sizes=st.lists(st.tuples(st.integers(1, 16), st.integers(1, 60)), min_size=4, max_size=20))
def test_gangs_that_want_it_all_again_and_again_all_come_to_an_end(name: str, sizes: list[tuple[int, int]]) -> None:
    rounds = scene(name, *[4] * 4)
    for number, (workers, length) in enumerate(sizes):
        rounds.submit(Job(name=f"job{number:02}", demands=[rounds.workers(workers)], length=length))

    rounds.advance(sum(length for _, length in sizes) + 1)

    assert len(rounds.ended) == len(sizes)


def stream(rounds: Rounds, dice: random.Random, number: int) -> Job:
    """A small one, of which there is always another."""
    workers = rounds.workers(dice.randint(1, 3))
    return Job(name=f"small{number:04}", demands=[workers], length=dice.randint(5, 120))


@pytest.mark.parametrize("seed", range(6))
def test_an_aged_gang_starts_at_the_latest_when_all_have_ended_that_ran_when_it_had_aged(seed: int) -> None:
    rounds, dice = scene("backfill", *[4] * 6), random.Random(seed)
    for number in range(10):
        rounds.submit(stream(rounds, dice, number))
    rounds.advance(1)
    servers, workers = rounds.demand(PS, 2, each={CPU: 3000}), rounds.workers(9, each=gpus(2))
    rounds.submit(Job(name="big", demands=[servers, workers], length=50))
    for number in range(10, 40):
        rounds.submit(stream(rounds, dice, number))
        rounds.advance(1)
    assert "big" not in rounds.running
    ran = set(rounds.running)
    passed = set[str]()

    for number in range(40, 2000):
        if "big" in rounds.running:
            break
        rounds.submit(stream(rounds, dice, number))
        rounds.advance(2)
        passed |= rounds.running.keys() - ran
        assert "big" in rounds.running or ran & rounds.running.keys(), "none is left of those that ran"
    assert "big" in rounds.running
    assert passed, "what could not delay it has gone on to start"


def test_who_fits_passes_the_head_until_it_is_aged() -> None:
    rounds = scene("backfill", 4)
    rounds.submit(Job(name="old", demands=[rounds.workers(2)], length=100))
    rounds.advance(1)
    rounds.submit(Job(name="head", demands=[rounds.workers(4)]))
    rounds.submit(Job(name="first", demands=[rounds.workers(1)], length=10))
    rounds.advance(30)
    assert rounds.ended == ["first"]

    rounds.submit(Job(name="second", demands=[rounds.workers(1)], length=10))
    rounds.advance(1)

    assert rounds.waits["second"].code == BEHIND_OTHERS
    assert rounds.waits["head"].code == INSUFFICIENT_RESOURCES
    assert rounds.waits["head"].message.endswith("what becomes free of it is kept for this job")
    rounds.advance(70)
    assert list(rounds.running) == ["head"]


def test_nothing_is_kept_for_a_gang_that_pods_of_others_leave_no_room() -> None:
    rounds = scene("backfill", 4)
    rounds.foreign = {"n00": gpus(1)}
    rounds.submit(Job(name="large", demands=[rounds.workers(4)]))
    rounds.advance(60)

    rounds.submit(Job(name="small", demands=[rounds.workers(3)]))
    rounds.advance(1)

    assert list(rounds.running) == ["small"]


def test_where_an_aged_gang_would_not_start_others_go_on() -> None:
    """What is kept are the places that it waits for, not the whole cluster."""
    rounds = scene("backfill", 4, 2)
    rounds.submit(Job(name="old", demands=[rounds.workers(3)]))
    rounds.advance(1)
    rounds.submit(Job(name="large", demands=[rounds.workers(1, each=gpus(4))]))
    rounds.advance(60)
    rounds.submit(Job(name="one", demands=[rounds.workers(1)]))
    rounds.submit(Job(name="two", demands=[rounds.workers(1)]))
    rounds.submit(Job(name="three", demands=[rounds.workers(1)]))
    rounds.advance(1)

    assert sorted(rounds.running) == ["old", "one", "three"]
    assert rounds.waits["two"].code == BEHIND_OTHERS


def test_several_aged_gangs_get_their_places_one_after_the_other_whatever_comes_behind_them() -> None:
    rounds, dice = scene("backfill", 4, 4), random.Random(5)
    for number in range(8):
        rounds.submit(Job(name=f"old{number}", demands=[rounds.workers(1)], length=35 + 5 * number))
    rounds.advance(1)
    for name in ("a", "b", "c", "d"):
        rounds.submit(Job(name=name, demands=[rounds.workers(1, each=gpus(4))], length=20))
        rounds.advance(1)
    started: list[str] = []

    for number in range(200):
        rounds.submit(stream(rounds, dice, number))
        rounds.advance(1)
        started += [name for name in ("a", "b", "c", "d") if name in rounds.running and name not in started]

    assert started == ["a", "b", "c", "d"]


@every_policy
def test_of_one_priority_the_namespace_goes_first_that_holds_least_for_its_weight(name: str) -> None:
    rules = Rules(is_fair=True, queues={"heavy": Queue(weight=3)})
    rounds = scene(name, 8, rules=rules)
    for number in range(12):
        rounds.submit(Job(name=f"heavy{number:02}", demands=[rounds.workers(1)], queue="heavy"))
        rounds.submit(Job(name=f"light{number:02}", demands=[rounds.workers(1)], queue="light"))

    rounds.advance(1)

    assert sorted(name[:5] for name in rounds.running) == ["heavy"] * 6 + ["light"] * 2


@every_policy
def test_what_a_namespace_holds_already_counts_when_the_next_is_chosen(name: str) -> None:
    rounds = scene(name, 6, rules=Rules(is_fair=True))
    rounds.submit(Job(name="a0", demands=[rounds.workers(4)], queue="a"))
    rounds.advance(1)
    for number in range(1, 3):
        rounds.submit(Job(name=f"a{number}", demands=[rounds.workers(1)], queue="a"))
        rounds.advance(0)
    rounds.end("a1")
    rounds.end("a2")
    rounds.submit(Job(name="a3", demands=[rounds.workers(1)], queue="a"))
    rounds.submit(Job(name="b0", demands=[rounds.workers(2)], queue="b"))
    rounds.advance(1)

    assert sorted(rounds.running) == ["a0", "b0"]


@every_policy
def test_who_would_exceed_the_quota_waits_and_blocks_nobody(name: str) -> None:
    rounds = scene(name, 8, rules=Rules(queues={"a": Queue(quota=gpus(4))}))
    rounds.submit(Job(name="a0", demands=[rounds.workers(3)], length=50, queue="a"))
    rounds.advance(1)
    rounds.submit(Job(name="a1", demands=[rounds.workers(2)], queue="a"))
    rounds.submit(Job(name="a2", demands=[rounds.workers(5)], queue="a"))
    rounds.submit(Job(name="b", demands=[rounds.workers(5)], queue="b"))
    rounds.advance(1)

    assert sorted(rounds.running) == ["a0", "b"]
    waits = rounds.waits
    assert (waits["a1"].code, waits["a1"].message) == (
        QUOTA_EXCEEDED,
        "the gang needs 2 nvidia.com/gpu; a holds 3 nvidia.com/gpu, and its quota is 4 nvidia.com/gpu",
    )
    assert (waits["a2"].code, waits["a2"].message) == (
        QUOTA_EXCEEDED,
        "waiting does not help: the gang alone needs 5 nvidia.com/gpu; the quota of a is 4 nvidia.com/gpu",
    )


@every_policy
def test_an_elastic_gang_starts_as_large_as_its_quota_lets_it_and_grows_no_further(name: str) -> None:
    rounds = scene(name, 8, rules=Rules(queues={"a": Queue(quota=gpus(4))}))
    rounds.submit(Job(name="rigid", demands=[rounds.workers(1)], length=200, queue="a"))
    rounds.advance(0)
    rounds.submit(Job(name="elastic", demands=[rounds.workers(5, least=1)], queue="a"))

    rounds.advance(190)
    assert rounds.size("elastic") == 3
    rounds.advance(190)

    assert rounds.size("elastic") == 4


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
    rounds = scene("fifo", *nodes, rules=Rules(preempts=False))
    for number, (workers, each, priority) in enumerate(jobs):
        demand = rounds.workers(workers, each=gpus(each))
        rounds.submit(Job(name=f"job{number}", demands=[demand], priority=priority))
        rounds.advance(1)
    rounds.waiting.clear()
    demands = [rounds.workers(wanted[0], each=gpus(wanted[1]))]
    rounds.submit(Job(name="urgent", demands=demands, priority=2))
    seen = replace(rounds.snapshot(), rules=Rules())

    evicted = [decision.gang for decision in POLICIES["fifo"](seen) if isinstance(decision, Evict)]

    numbers = [number for number, gang in enumerate(seen.running) if gang.name in evicted]
    assert all(seen.running[number].priority < 2 for number in numbers)
    ledger = Ledger.of_free_soon(seen.nodes)
    holders = Holders(seen.running, ledger.nodes)
    assert not numbers or could_fit(demands, holders.without(numbers, ledger))
    for spared in numbers:
        others = [number for number in numbers if number != spared]
        assert not could_fit(demands, holders.without(others, ledger)), f"{seen.running[spared].name} for nothing"


@every_policy
def test_whoever_runs_the_cluster_may_forbid_preemption(name: str) -> None:
    rounds = scene(name, 2, rules=Rules(preempts=False))
    rounds.submit(Job(name="low", demands=[rounds.workers(2)]))
    rounds.advance(1)
    rounds.submit(Job(name="urgent", demands=[rounds.workers(2)], priority=9))
    rounds.advance(1)

    assert list(rounds.running) == ["low"]


@every_policy
def test_waits_of_a_thousand_gangs_are_told_in_few_words(name: str) -> None:
    rounds = scene(name, 4)
    rounds.submit(Job(name="a", demands=[rounds.workers(3)]))
    for number in range(1000):
        rounds.submit(Job(name=f"job{number}", demands=[rounds.workers(2 + number % 3)]))
    rounds.advance(1)

    assert len({(waits.code, waits.message) for waits in rounds.waits.values()}) <= 4


def test_a_gang_whose_namespace_is_full_gets_its_turn_when_it_has_aged() -> None:
    rounds = scene("backfill", 8, rules=Rules(queues={"a": Queue(quota=gpus(4))}))
    for number in range(4):
        rounds.submit(Job(name=f"small{number}", demands=[rounds.workers(1)], length=40 + number, queue="a"))
    rounds.advance(1)
    rounds.submit(Job(name="large", demands=[rounds.workers(4)], queue="a"))
    for number in range(4, 40):
        rounds.submit(Job(name=f"small{number:02}", demands=[rounds.workers(1)], length=40 + number, queue="a"))
    rounds.advance(150)

    assert "large" in rounds.running
