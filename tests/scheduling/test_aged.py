"""Time: who has waited for long is in nobody's way for whom there is something to be had, nor is a wrong clock."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from tarragon.base.resources import CPU
from tarragon.frameworks.tensorflow.replica_types import PS
from tests.scheduling.rounds import Job, gpus
from tests.scheduling.scenes import scene


def test_however_many_aged_jobs_no_shrinking_helps_the_one_behind_them_is_helped() -> None:
    made = scene("dragon", 8, 8)
    here, there = frozenset({"n00"}), frozenset({"n01"})
    for name, where in (("left", here), ("right", there)):
        made.submit(Job(name=name, demands=[replace(made.workers(8, least=2), eligible_nodes=where)]))
    made.decide()
    # Each of these seems to fit what could be given back: four parameter servers do, and four workers do.
    for number in range(6):
        workers = made.workers(4, each={**gpus(1), CPU: 1 + number})
        demands = [replace(demand, eligible_nodes=here) for demand in (made.demand(PS, 4, each=gpus(1)), workers)]
        made.submit(Job(name=f"large-{number}", demands=demands))
    made.advance(1)
    made.submit(Job(name="small", demands=[replace(made.workers(2), eligible_nodes=there)]))

    made.advance(31)
    made.decide()

    assert "small" in made.running
    assert (made.size("left"), made.size("right")) == (8, 6)


def test_a_clock_that_was_a_day_ahead_for_a_moment_keeps_nobody_from_growing() -> None:
    made = scene("dragon", 8)
    made.submit(Job(name="elastic", demands=[made.workers(2, least=1, most=8)]))
    made.decide()
    tomorrow = made.now + dt.timedelta(days=1)
    made.running["elastic"].admitted = made.running["elastic"].resized = tomorrow

    made.advance(61)

    assert made.size("elastic") == 8
