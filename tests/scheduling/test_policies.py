"""What all policies promise, seen over rounds; `rounds` checks each decision as it happens."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tarragon.base.resources import CPU
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.scheduling.api.decision import (
    QUOTA_EXCEEDED,
)
from tarragon.scheduling.api.rules import DEFAULT_POLICY, POLICY_NAMES, QueueRules, SchedulingRules
from tarragon.scheduling.policies import POLICIES
from tests.scheduling.rounds import Job, Rounds, gpus
from tests.scheduling.scenes import STANDARD, afresh, every_policy, scene

RULES = SchedulingRules(
    is_fair_share=True, queues={"a": QueueRules(weight=2, quota=gpus(6)), "b": QueueRules(quota={**gpus(9), CPU: 5000})}
)
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


NOTHING_AT_LEAST = {"least": 0, "more": 1, "idle": 0, "each": 1, "servers": 0, "queue": "a", "preempts": False}
SHRUNK_TO_NOTHING = [
    {**NOTHING_AT_LEAST, "length": 13, "priority": 5, "after": 6},
    {**NOTHING_AT_LEAST, "least": 4, "more": 0, "each": 3, "length": 1, "priority": 5, "preempts": True, "after": 6},
    {**NOTHING_AT_LEAST, "length": 2, "priority": 0, "after": 0},
]
"""What the second one waits for is given back when nobody else has anything left that could end later."""


EQUAL_THAT_NEVER_FIT = [
    {
        "least": 1,
        "more": 0,
        "idle": 1,
        "each": 1,
        "servers": 0,
        "length": 1,
        "priority": 0,
        "queue": "a",
        "preempts": False,
    }
    | {"after": 0}
] * 2
"""Both are told so, not only the first one."""


@every_policy
@settings(max_examples=20, deadline=None)
@given(nodes=NODES, jobs=JOBS, grace=st.sampled_from([0, 0, 7]), rules=st.sampled_from([STANDARD, RULES]))
@example(nodes=[6, 6], jobs=SHRUNK_TO_NOTHING, grace=0, rules=STANDARD)
@example(nodes=[0], jobs=EQUAL_THAT_NEVER_FIT, grace=0, rules=STANDARD)
def test_whatever_comes_no_round_breaks_a_promise(
    name: str, nodes: list[int], jobs: list[dict[str, int]], grace: int, rules: SchedulingRules
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

    policy = afresh(POLICIES[name])

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


@every_policy
def test_waits_of_a_thousand_gangs_are_told_in_few_words(name: str) -> None:
    rounds = scene(name, 4)
    rounds.submit(Job(name="a", demands=[rounds.workers(3)]))
    for number in range(1000):
        rounds.submit(Job(name=f"job{number}", demands=[rounds.workers(2 + number % 3)]))
    rounds.advance(1)

    assert len({(waits.code, waits.message) for waits in rounds.waits.values()}) <= 4


def test_the_names_that_are_offered_are_those_of_the_policies() -> None:
    assert tuple(POLICIES) == POLICY_NAMES
    assert DEFAULT_POLICY in POLICIES
