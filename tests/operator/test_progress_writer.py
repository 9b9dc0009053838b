"""How often progress is written, and which."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from tarragon.base.clock import FakeClock
from tarragon.client.errors import Conflict, NotFound, Unavailable
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.job.progress import Progress, encode_progress
from tarragon.kube.codec import encode
from tarragon.kube.meta import CustomObject, CustomObjectMeta, Key
from tarragon.operator.informers.informers import Informers
from tarragon.operator.metrics.meter import NoMeter
from tarragon.operator.progress.writer import CONFLICT_SECONDS, SECONDS_BETWEEN, WRITE_SPACING, ProgressWriter
from tarragon.plan.objects.settings import OperatorSettings


class Written:
    """An API server that takes patches of statuses and notes when, of which job, and how much was done."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.patches: list[tuple[float, str, int]] = []
        self.errors: list[Exception] = []
        self.before: Callable[[], None] = lambda: None
        """What happens elsewhere while a patch is under way."""

    async def patch(self, _: Any, key: Any, patch: Any, *, subresource: str = "") -> None:
        assert subresource == "status"
        self.before()
        if self.errors:
            raise self.errors.pop(0)
        done = patch["status"]["tarragon"]["progress"]["done"]
        self.patches.append((round(self._clock.monotonic(), 3), key.name, done))


def job_with(name: str, *, version: str = "1", uid: str = "", **status: Any) -> CustomObject:
    return CustomObject(
        api_version="kubeflow.org/v1",
        kind="TFJob",
        metadata=CustomObjectMeta(name=name, namespace="default", uid=uid or f"uid-{name}", resource_version=version),
        raw_status=msgspec.Raw(encode({"tarragon": status})),
    )


class Watched:
    """What the operator knows of the TFJobs."""

    resource = TENSORFLOW.resource

    def __init__(self) -> None:
        self.objects: dict[Key, CustomObject] = {}
        self._handlers: list[Any] = []

    def add_event_handler(self, handler: Any) -> None:
        self._handlers.append(handler)

    def learn(self, job: CustomObject) -> None:
        old = self.objects.get(job.metadata.key)
        self.objects[job.metadata.key] = job
        for handler in self._handlers:
            handler(job.metadata.key, old, job)


class Site:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.api = Written(self.clock)
        self.watched = Watched()
        cluster: Any = self.api
        informers = Informers(cluster, FRAMEWORKS, self.clock, OperatorSettings(), random.Random(1))
        informers.jobs = {**informers.jobs, TENSORFLOW.kind: self.watched}  # type: ignore[dict-item]
        self.writer = ProgressWriter(cluster, self.clock, informers, NoMeter())

    def submit(self, name: str, done: int, *, pod: str = "p", **status: Any) -> None:
        """A pod of the job has reported; the job has this status."""
        found = Progress(updated_at=self.clock.now(), done=done, total=1000, pod_uid=pod)
        self.writer.submit(TENSORFLOW.kind, job_with(name, **status), found)

    async def passes(self, seconds: float) -> None:
        """Let time pass in small steps, as it does."""
        for _ in range(round(seconds / WRITE_SPACING)):
            await self._settle()
            self.clock.advance(WRITE_SPACING)
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(8):
            await self.clock.sleep(0)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    running = asyncio.create_task(made.writer.run())
    yield made
    running.cancel()


async def test_the_first_report_is_written_at_once_and_then_the_newest_each_ten_seconds(site: Site) -> None:
    for second in range(25):
        site.submit("a", second + 1)
        await site.passes(1)

    assert [(round(at), done) for at, _, done in site.api.patches] == [(0, 1), (10, 10), (20, 20)]


async def test_the_end_of_a_training_is_written_at_once(site: Site) -> None:
    site.submit("a", 1)
    await site.passes(1)
    site.submit("a", 1000)
    await site.passes(1)

    assert [done for _, _, done in site.api.patches] == [1, 1000]


async def test_an_end_that_is_reported_again_and_again_is_not_written_again_and_again(site: Site) -> None:
    for _ in range(50):
        site.submit("a", 1000)
        await site.passes(0.1)

    assert len(site.api.patches) == 1


async def test_a_program_that_says_again_and_again_that_it_is_at_its_end_causes_few_writes(site: Site) -> None:
    for number in range(200):
        site.submit("a", 1000 if number % 2 else 1)
        await site.passes(0.1)

    assert len(site.api.patches) <= 5


@pytest.mark.parametrize("state", ["Succeeded", "Failed"])
async def test_when_its_job_has_ended_the_last_report_is_written_at_once(site: Site, state: str) -> None:
    site.submit("a", 1)
    await site.passes(1)
    site.submit("a", 2)
    site.submit("a", 3, state=state)
    await site.passes(0.2)

    assert [done for _, _, done in site.api.patches] == [1, 3]


async def test_however_many_jobs_report_twenty_are_written_a_second_and_all_in_turn(site: Site) -> None:
    for _ in range(3):
        for number in range(100):
            site.submit(f"job-{number}", 1)
        await site.passes(2)

    assert len(site.api.patches) == 100
    assert len({name for _, name, _ in site.api.patches}) == 100
    times = [at for at, _, _ in site.api.patches]
    assert min(later - sooner for sooner, later in itertools.pairwise(times)) >= WRITE_SPACING - 0.001


async def test_a_write_that_fails_is_tried_again_later_with_the_newest(site: Site) -> None:
    site.api.errors = [Unavailable({"code": 503})]
    site.submit("a", 1)
    await site.passes(1)
    site.submit("a", 2)
    await site.passes(SECONDS_BETWEEN)

    assert [done for _, _, done in site.api.patches] == [2]


async def test_a_write_that_was_overtaken_by_another_change_of_the_job_is_repeated_soon(site: Site) -> None:
    site.api.errors = [Conflict({"code": 409})]
    site.submit("a", 1)
    await site.passes(CONFLICT_SECONDS + 0.5)

    assert [done for _, _, done in site.api.patches] == [1]


async def test_the_repetition_does_not_wait_any_longer_when_the_watch_shows_that_change(site: Site) -> None:
    site.watched.learn(job_with("a"))
    site.api.errors = [Conflict({"code": 409})]
    site.submit("a", 1)
    await site.passes(0.2)
    assert site.api.patches == []
    site.watched.learn(job_with("a", version="2"))
    await site.passes(2 * WRITE_SPACING)

    assert [done for _, _, done in site.api.patches] == [1]


async def test_a_write_that_the_watch_outdates_while_it_is_under_way_is_repeated_at_once(site: Site) -> None:
    site.watched.learn(job_with("a"))
    site.api.before = lambda: site.watched.learn(job_with("a", version="2"))
    site.api.errors = [Conflict({"code": 409})]
    site.submit("a", 1)
    await site.passes(2 * WRITE_SPACING)

    assert [done for _, _, done in site.api.patches] == [1]


async def test_a_change_of_a_job_whose_write_was_not_refused_does_not_bring_the_next_one_forward(site: Site) -> None:
    site.watched.learn(job_with("a"))
    site.submit("a", 1)
    await site.passes(1)
    site.submit("a", 2)
    site.watched.learn(job_with("a", version="2"))
    await site.passes(1)

    assert [done for _, _, done in site.api.patches] == [1]


async def test_a_version_that_is_outdated_itself_leads_to_one_more_try_and_not_to_a_loop(site: Site) -> None:
    site.watched.learn(job_with("a"))
    site.api.errors = [Conflict({"code": 409}), Conflict({"code": 409})]
    site.submit("a", 1)
    await site.passes(0.2)
    site.watched.learn(job_with("a", version="2"))
    await site.passes(0.2)
    assert (site.api.errors, site.api.patches) == ([], [])
    await site.passes(CONFLICT_SECONDS)

    assert [done for _, _, done in site.api.patches] == [1]


@pytest.mark.parametrize(
    ("done", "status"), [(5, {"state": "Succeeded"}), (1000, {})], ids=["the job has ended", "the training says so"]
)
async def test_a_last_report_keeps_its_head_start_when_it_is_repeated(
    site: Site, done: int, status: dict[str, str]
) -> None:
    site.watched.learn(job_with("a"))
    for number in range(100):
        site.submit(f"other-{number}", 1)
    site.api.errors = [Conflict({"code": 409})]
    site.submit("a", done, **status)
    await site.passes(0)
    assert site.api.errors == [], "the write of `a` comes first, and is refused"
    site.watched.learn(job_with("a", version="2", **status))
    await site.passes(3 * WRITE_SPACING)

    assert "a" in [name for _, name, _ in site.api.patches]


async def test_what_was_reported_of_a_job_that_was_replaced_meanwhile_is_given_up(site: Site) -> None:
    site.watched.learn(job_with("a"))
    site.api.errors = [Conflict({"code": 409})]
    site.submit("a", 1)
    await site.passes(0.2)
    site.watched.learn(job_with("a", version="2", uid="another"))
    await site.passes(SECONDS_BETWEEN)

    assert site.api.patches == []


async def test_a_job_that_is_gone_is_given_up(site: Site) -> None:
    site.api.errors = [NotFound({"code": 404})]
    site.submit("a", 1)
    await site.passes(SECONDS_BETWEEN + 1)

    assert site.api.patches == []


async def test_what_another_operator_has_recorded_later_is_not_undone(site: Site) -> None:
    later = site.clock.now() + dt.timedelta(seconds=5)
    recorded = encode_progress(Progress(updated_at=later, done=9, total=1000, pod_uid="p"))
    site.submit("a", 1, progress=recorded)
    await site.passes(1)

    assert site.api.patches == []


async def test_a_record_from_the_future_does_not_stop_the_writes(site: Site) -> None:
    future = site.clock.now() + dt.timedelta(days=365)
    recorded = encode_progress(Progress(updated_at=future, done=9, total=1000, pod_uid="p"))
    site.submit("a", 1, progress=recorded)
    await site.passes(1)

    assert [done for _, _, done in site.api.patches] == [1]


async def test_a_replica_that_is_behind_does_not_replace_the_one_that_is_ahead(site: Site) -> None:
    site.submit("a", 10, pod="one")
    site.submit("a", 9, pod="other")
    await site.passes(1)

    assert [done for _, _, done in site.api.patches] == [10]


@pytest.mark.parametrize("recorded", [{"done": "x"}, {"at": 5}, {"done": 5, "total": 1, "at": "2026-01-01T00:00:00Z"}])
async def test_a_record_that_somebody_has_spoiled_is_replaced(site: Site, recorded: Any) -> None:
    site.submit("a", 1, progress=recorded)
    await site.passes(1)

    assert [done for _, _, done in site.api.patches] == [1]
