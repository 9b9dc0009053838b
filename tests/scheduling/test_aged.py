"""Gangs that have waited for long are in nobody's way for whom there is something to be had."""

from __future__ import annotations

from dataclasses import replace

from tarragon.base.resources import CPU
from tests.scheduling.rounds import PS, Job, gpus
from tests.scheduling.scenes import scene


def test_however_many_aged_jobs_no_shrinking_helps_the_one_behind_them_is_helped() -> None:
    made = scene("dragon", 8, 8)
    here, there = frozenset({"n00"}), frozenset({"n01"})
    for name, where in (("left", here), ("right", there)):
        made.submit(Job(name=name, demands=[replace(made.workers(8, least=2), eligible=where)]))
    made.decide()
    # Each of these seems to fit what could be given back: four parameter servers do, and four workers do.
    for number in range(6):
        workers = made.workers(4, each={**gpus(1), CPU: 1 + number})
        demands = [replace(demand, eligible=here) for demand in (made.demand(PS, 4, each=gpus(1)), workers)]
        made.submit(Job(name=f"large-{number}", demands=demands))
    made.advance(1)
    made.submit(Job(name="small", demands=[replace(made.workers(2), eligible=there)]))

    made.advance(31)
    made.decide()

    assert "small" in made.running
    assert (made.size("left"), made.size("right")) == (8, 6)
