"""Ten thousand jobs on one page: what is drawn, read and sorted stays little."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from tarragon.base.clock import FakeClock
from tarragon.cli.output.style import uncolored
from tarragon.cli.top.job_rows import JobRow
from tarragon.cli.top.page import render_page
from tarragon.cli.top.page_state import PageState
from tarragon.cli.top.view_builder import SORT_INTERVAL_FACTOR, SortedRows
from tarragon.cli.top.watched_state import WatchedState
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.meta import Key
from tests.cli.test_top_page import SMALL, job, view

MANY = 10_000


def test_only_rows_that_are_seen_are_drawn() -> None:
    seen = [job(f"job-{number}") for number in range(20)]
    unread = cast("Any", None)
    shown = replace(view(seen), entries=[*seen, *[unread] * (MANY - 20)])

    drawing = render_page(shown, PageState(job=seen[0].key), SMALL, uncolored)

    assert len(drawing) == SMALL.height


def test_jobs_that_come_together_are_read_a_few_at_a_time() -> None:
    scene = WatchedState()
    found = job("digits").job.object
    for number in range(200):
        scene.undecoded["TFJob", Key("default", str(number))] = FRAMEWORKS[0], found

    scene.decode(64)

    assert (len(scene.jobs), len(scene.undecoded)) == (64, 136)


class Slow(FakeClock):
    """A clock on which everything that is timed takes a second."""

    def monotonic(self) -> float:
        now = super().monotonic()
        self.advance(1)
        return now


def scene_of(*names: str) -> WatchedState:
    entries: list[JobRow] = [job(name) for name in names]
    return WatchedState(jobs={each.key: each for each in entries})


def test_where_sorting_takes_long_new_rows_wait_for_their_places_and_the_user_does_not() -> None:
    scene, clock = scene_of("b", "a"), Slow()
    order = SortedRows(clock)
    order.refresh(scene, PageState(sort="name"))
    scene.jobs |= scene_of("c").jobs
    scene.version += 1

    order.refresh(scene, PageState(sort="name"))
    assert [each.name for each in order.entries] == ["a", "b"]

    order.refresh(scene, PageState(sort="name", is_reversed=True))
    assert [each.name for each in order.entries] == ["c", "b", "a"]

    scene.jobs |= scene_of("d").jobs
    scene.version += 1
    clock.advance(2 * SORT_INTERVAL_FACTOR)
    order.refresh(scene, PageState(sort="name", is_reversed=True))
    assert [each.name for each in order.entries] == ["d", "c", "b", "a"]


def test_a_scene_that_has_not_changed_is_not_sorted_again() -> None:
    scene, clock = scene_of("a"), FakeClock()
    order = SortedRows(clock)
    order.refresh(scene, PageState())
    before = order.entries
    clock.advance(100)

    order.refresh(scene, PageState())

    assert order.entries is before
