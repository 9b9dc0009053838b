"""What the scheduler knows of the work of jobs: from their statuses, from others of their kind, and after a change of
leaders.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from bench.support.dict_cluster import TFJOBS
from tarragon.job.phase import Phase
from tarragon.job.progress import Progress, progress_patch
from tarragon.job.status import JobStatus
from tarragon.job.work import JobWork, SizeRecord, Stretch, encode_work
from tarragon.kube.codec import decode, encode, format_micro_time
from tarragon.kube.merge_patch import apply_merge_patch
from tarragon.kube.meta import CustomObject, Key
from tarragon.operator.informers.unrecorded_reports import FIRST_REPORT_DELAY, PROMISE_DELAY, record_delay
from tarragon.operator.scheduler.snapshot.work_estimates import MAX_KINDS, WorkEstimates
from tarragon.scheduling.api.snapshot import RunningGang, WaitingGang
from tarragon.scheduling.api.work import DEFAULT_RESTART_SECONDS, UNKNOWN_WORK_SECONDS, WorkEstimate
from tarragon.scheduling.estimates.estimate import MIN_RESTART_SECONDS
from tests.operator.stage import Stage, group
from tests.operator.test_snapshot_builder import Story, seen

KIND = "0123456789abcdef"
HOUR = 3600.0


def with_work(story: Story, name: str, work: JobWork, **status: Any) -> None:
    found = story.named(TFJOBS.plural, name)
    story.shelves.put(TFJOBS, apply_merge_patch(found, {"status": {"tarragon": {**status, "work": encode_work(work)}}}))


def finished(story: Story, name: str, needed: float, state: str = "Succeeded") -> None:
    story.job(name)
    with_work(story, name, JobWork(kind=KIND, sizes={2: SizeRecord(100.0)}, needed=needed), state=state)


def at_work(story: Story, *, since: float = 0.0, **fields: Any) -> JobWork:
    """The record of a job whose two replicas run since so many seconds ago."""
    began = story.clock.now() - dt.timedelta(seconds=since)
    return JobWork(kind=KIND, stretch=Stretch(size=2, asked_at=began, began_at=began), **fields)


@pytest.fixture
def story() -> Story:
    """A cluster with one node."""
    made = Story()
    made.node("n")
    return made


async def works(story: Story) -> dict[str, WorkEstimate]:
    snapshot = await story.admitter.snapshot()
    gangs: list[WaitingGang | RunningGang] = [*snapshot.waiting, *snapshot.running]
    assert seen(snapshot) == seen(await story.newcomer().snapshot())
    return {gang.name.rpartition("/")[2]: gang.work for gang in gangs if gang.work is not None}


async def runs(story: Story, name: str, **spec: Any) -> None:
    story.job(name, **spec)
    await story.admitter.run_cycle()
    story.pods_run(name)


async def test_a_job_of_which_nothing_is_known_has_an_estimate_by_what_it_requests() -> None:
    story = Story()
    story.job("a", workers=4, gpus=2)
    story.job("b", workers=4, gpus=2)

    found = await works(story)

    assert found["a"].remaining == UNKNOWN_WORK_SECONDS * 4 * 2
    assert found["a"] is found["b"]


async def test_a_job_learns_from_finished_jobs_of_its_kind() -> None:
    story = Story()
    finished(story, "before", 5 * HOUR)
    story.job("a")
    with_work(story, "a", JobWork(kind=KIND))
    story.job("other")

    found = await works(story)

    assert found["a"].remaining == 5 * HOUR
    assert found["other"].remaining == UNKNOWN_WORK_SECONDS * 2


async def test_a_job_that_failed_says_nothing_about_its_kind() -> None:
    story = Story()
    finished(story, "before", 5 * HOUR, state="Failed")
    story.job("a")
    with_work(story, "a", JobWork(kind=KIND))

    assert (await works(story))["a"].remaining == UNKNOWN_WORK_SECONDS * 2


async def test_a_finished_job_counts_once_and_stays_known_after_its_deletion() -> None:
    story = Story()
    finished(story, "short", HOUR)
    finished(story, "long", 3 * HOUR)
    story.job("a")
    with_work(story, "a", JobWork(kind=KIND))
    for _ in range(3):
        finished(story, "short", HOUR)
        await story.admitter.run_cycle()
    with_work(story, "a", JobWork(kind=KIND))  # the status that was written with its wait has its real kind
    assert (await works(story))["a"].remaining == 2 * HOUR

    story.shelves.remove(TFJOBS, Key("default", "short"))
    story.job("a", labels={"changed": "yes"})
    with_work(story, "a", JobWork(kind=KIND))

    [gang] = (await story.admitter.snapshot()).waiting
    assert gang.work is not None
    assert gang.work.remaining == 2 * HOUR


async def test_the_estimate_of_a_job_to_which_nothing_happens_changes_with_the_time() -> None:
    story = Story()
    story.node("n")
    await runs(story, "a")
    with_work(story, "a", at_work(story))
    before = (await works(story))["a"].remaining
    story.clock.advance(24 * HOUR)

    assert (await works(story))["a"].remaining > 8 * before


async def test_a_job_has_what_its_reports_say_is_left() -> None:
    story = Story()
    story.node("n")
    await runs(story, "a")
    began = story.clock.now()
    story.clock.advance(200)
    reported = Progress(updated_at=story.clock.now(), done=100, total=400)
    work = {**encode_work(JobWork(kind=KIND, unit="steps", stretch=Stretch(size=2, asked_at=began, began_at=began)))}
    work["running"]["first"] = {"at": format_micro_time(began), "done": 0}
    progress = {"done": 100, "total": 400, "at": format_micro_time(reported.updated_at)}
    body = story.named(TFJOBS.plural, "a")
    story.shelves.put(TFJOBS, apply_merge_patch(body, {"status": {"tarragon": {"work": work, "progress": progress}}}))

    found = (await works(story))["a"]

    assert found.remaining / found.curve.at(2) == 600


def shown(rate: float, **fields: Any) -> JobWork:
    """The record of a job that was measured at two replicas."""
    return JobWork(kind=KIND, unit="steps", sizes={2: SizeRecord(1000.0, 1000.0 * rate)}, **fields)


async def test_a_job_that_broke_its_promise_teaches_its_kind_no_rates(story: Story) -> None:
    for name, work in (("honest", shown(1.0)), ("liar", shown(1000.0, believed_until=100.0)), ("silent", shown(0.0))):
        await runs(story, name)
        with_work(story, name, work)

    assert (await works(story))["silent"].curve.rates == ((2, 1.0),)


async def test_a_job_that_is_found_out_is_forgotten_by_its_kind(story: Story) -> None:
    for name, work in (("honest", shown(1.0)), ("liar", shown(1000.0, believed_until=1e6)), ("silent", shown(0.0))):
        await runs(story, name)
        with_work(story, name, work)
    before = await works(story)
    with_work(story, "liar", shown(1000.0, believed_until=100.0))
    await story.admitter.run_cycle()
    story.clock.advance(HOUR)

    assert before["silent"].curve.rates == ()
    assert (await works(story))["silent"].curve.rates == ((2, 1.0),)


async def test_a_finished_job_that_broke_its_promise_shows_how_long_it_took_and_nothing_else(story: Story) -> None:
    await runs(story, "honest")
    with_work(story, "honest", shown(1.0))
    story.job("liar")
    with_work(story, "liar", shown(1000.0, believed_until=100.0, needed=5 * HOUR), state="Succeeded")
    await runs(story, "silent")
    with_work(story, "silent", shown(0.0))

    found = (await works(story))["silent"]

    assert found.curve.rates == ((2, 1.0),)
    assert found.remaining > 4 * HOUR


async def test_a_resize_in_place_costs_less_than_a_start() -> None:
    story = Story()
    story.node("n")
    bounds = {"min-instances": 1, "max-instances": 2}
    await runs(story, "elastic", **bounds)
    await runs(story, "rigid")
    for name in ("elastic", "rigid"):
        with_work(story, name, at_work(story, restart_seconds=90.0))
    story.job("waits")

    found = await works(story)

    assert {name: each.restart_seconds for name, each in found.items()} == {
        "elastic": MIN_RESTART_SECONDS,
        "rigid": 90.0,
        "waits": DEFAULT_RESTART_SECONDS,
    }


def test_the_history_of_kinds_is_bounded() -> None:
    estimates = WorkEstimates()
    for index in range(MAX_KINDS + 10):
        work = JobWork(kind=str(index), needed=HOUR)
        estimates.job_finished(f"uid-{index}", JobStatus(phase=Phase.SUCCEEDED, work=work))

    assert len(estimates._histories) == len(estimates._unit_of_kind) == MAX_KINDS  # noqa: SLF001 - what it holds


async def test_the_first_report_of_a_program_is_recorded(stage: Stage) -> None:
    await stage.node("n")
    stage.start_operator()
    await stage.submit("a", Worker=group(1))
    await stage.until_pods("a-worker-0")
    await stage.all_run("a-worker-0")
    await stage.until_state("a", "Running")
    found = Progress(updated_at=stage.world.clock.now(), done=7, total=100)
    await stage.world.client.patch(TFJOBS, Key("default", "a"), progress_patch(found), subresource="status")

    def first() -> Any:
        return stage.job("a")["status"]["tarragon"]["work"]["running"].get("first")

    await stage.world.until(lambda: first() is not None)
    assert first()["done"] == 7


STRETCH = {"running": {"size": 1}}
REPORTED = {"running": {"size": 1, "first": {"done": 1}}}


@pytest.mark.parametrize(
    ("work", "progress", "delay"),
    [
        (STRETCH, {"done": 1}, FIRST_REPORT_DELAY),
        (STRETCH, {"done": 0}, None),
        ({**REPORTED, "unit": "epochs"}, {"done": 1}, FIRST_REPORT_DELAY),
        ({**REPORTED, "unit": "steps", "believed": 9.0}, {"done": 3, "unit": "percent"}, None),
        (REPORTED, {"done": 2, "total": 9}, PROMISE_DELAY),
        (REPORTED, {"done": 2}, None),
        ({**REPORTED, "believed": 9.0}, {"done": 2, "total": 9}, None),
        (STRETCH, None, None),
        ({}, {"done": 1}, None),
        ("x", 5, None),
    ],
    ids=str,
)
def test_the_first_report_and_the_first_promise_are_to_be_recorded(
    work: Any, progress: Any, delay: float | None
) -> None:
    status = {"tarragon": {"work": work, "progress": progress}}

    assert record_delay(decode(encode({"status": status}), CustomObject)) == delay
    assert record_delay(decode(b"{}", CustomObject)) is None


async def test_a_job_that_is_resized_keeps_its_service_and_a_new_leader_reads_the_same(stage: Stage) -> None:
    await stage.node("n")
    leader = stage.operator()
    bounds: dict[str, Any] = {"min-instances": 1, "max-instances": 3}
    await stage.submit("a", PS=group(1), Worker=group(3), **bounds)
    pods = ("a-ps-0", "a-worker-0", "a-worker-1", "a-worker-2")
    await stage.until_pods(*pods)
    await stage.all_run(*pods)

    def work() -> dict[str, Any]:
        found: dict[str, Any] = stage.job("a").get("status", {}).get("tarragon", {}).get("work", {})
        return found

    await stage.world.until(lambda: work().get("running", {}).get("size") == 3)
    wish = {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 2}}}}
    await stage.world.client.patch(TFJOBS, Key("default", "a"), wish)
    await stage.world.until(lambda: work().get("running", {}).get("size") == 2)
    before = work()
    await stage.kill(leader)
    stage.start_operator()
    await stage.world.client.patch(TFJOBS, Key("default", "a"), {"metadata": {"labels": {"seen": "yes"}}})
    await stage.submit("b", Worker=group(1))
    await stage.world.until(lambda: "b-worker-0" in stage.pods())

    assert work() == before
    assert before["sizes"]["3"][0] > 0
    assert before["kind"]
