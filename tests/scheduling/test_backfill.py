"""Who passes whom, and what is kept for the aged."""

from __future__ import annotations

import random

import pytest

from tarragon.base.resources import CPU
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.scheduling.api.decision import (
    BEHIND_OTHERS,
    INSUFFICIENT_RESOURCES,
)
from tests.scheduling.rounds import Job, Rounds, gpus
from tests.scheduling.scenes import scene


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
    assert rounds.waits["head"].message.endswith("resources that become free are reserved for this job")
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
