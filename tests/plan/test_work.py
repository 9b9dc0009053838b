"""What a job's status says of its work outlives whatever happens to the job."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tarragon.job.model import ReplicaType
from tarragon.job.progress import Progress, Unit, progress_patch
from tarragon.job.work import JobWork, SizeRecord
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.status.work import counted_group, kind_of, speedup_prior, work_record
from tarragon.scheduling.api.work import SpeedupPrior
from tarragon.scheduling.estimates.estimate import attained_level, estimate_work
from tarragon.scheduling.estimates.kind_history import KindHistory
from tests.plan.world import World, manifest


def elastic(workers: int = 2, **groups: int) -> World:
    job = manifest({**groups, "Worker": workers})
    job["spec"] |= {"min-instances": 1, "max-instances": 8}
    world = World(job)
    world.settle()
    start(world)
    return world


def start(world: World, **size: int) -> None:
    world.admit(**size)
    world.settle()
    world.bury()
    world.settle()
    world.pass_time(20)
    world.run()
    world.settle()


def resize(world: World, **size: int) -> None:
    before = world.status.admission
    world.admit(**size)
    after = world.status.admission
    assert before is not None
    assert after is not None
    world.write_admission(replace(after, admitted_at=before.admitted_at, resized_at=world.now))


def running(workers: int = 2) -> World:
    world = World(manifest({"Worker": workers}))
    world.settle()
    start(world)
    return world


def report(world: World, done: int, total: int = 1000, unit: Unit = Unit.STEPS) -> None:
    """What the server of reports writes, and the operator makes of it."""
    uid = world.pods["dist-worker-0"]["metadata"]["uid"]
    found = Progress(updated_at=world.now, done=done, total=total, unit=unit, metrics={"loss": "0.5"}, pod_uid=uid)
    world.patch_job({"status": progress_patch(found)["status"]})
    world.settle()


def work(world: World) -> JobWork:
    return world.status.work


def sizes(world: World) -> dict[int, float]:
    """The seconds at each size until now."""
    record = work_record(work(world), world.status.progress, world.now)
    return {size: each.seconds for size, each in record.sizes.items()}


def writes(world: World) -> int:
    return int(world.job["metadata"]["resourceVersion"])


# ----------------------------------------------------------------------------------------------------------- progress


def test_progress_is_kept_by_the_writes_of_the_reconciler() -> None:
    world = running()
    report(world, 10)
    trainer_status = world.job["status"]["trainerStatus"]

    world.exit("dist-worker-0", 0)
    world.settle()

    assert world.conditions()["Succeeded"]
    assert world.status.progress is not None
    assert world.status.progress.done == 10
    assert world.job["status"]["trainerStatus"] == trainer_status


@pytest.mark.parametrize("nonsense", ["x", 5, [], {"at": 3}, {"at": "2026-01-01T00:00:00Z", "done": -1}])
def test_nonsense_instead_of_progress_counts_as_none(nonsense: object) -> None:
    world = running()
    world.patch_job({"status": {"trainerStatus": nonsense, "tarragon": {"progress": nonsense}}})
    world.settle()

    assert world.status.progress is None


# ------------------------------------------------------------------------------------------------------------ service


def test_a_job_receives_service_while_all_its_replicas_run() -> None:
    world = running(2)
    world.pass_time(100)

    assert sizes(world) == {2: 100}
    assert work(world).restart_seconds == 20


def test_a_job_that_waits_for_a_replica_receives_none() -> None:
    world = World(manifest({"Worker": 2}))
    world.settle()
    world.admit()
    world.settle()
    world.run("dist-worker-0")
    world.settle()
    world.pass_time(100)

    assert sizes(world) == {}


def test_nothing_is_written_while_a_job_runs_and_reports_nothing() -> None:
    world = running(2)
    before = writes(world)
    for _ in range(100):
        world.pass_time(60)
        world.settle()

    assert writes(world) == before
    assert sizes(world) == {2: 6000}


def test_service_is_kept_over_evictions_and_sizes() -> None:
    world = elastic(2)
    world.pass_time(100)
    world.withdraw()
    world.settle()
    world.bury()
    world.settle()
    world.pass_time(1000)
    start(world, Worker=4)
    world.pass_time(50)

    assert sizes(world) == {2: 100, 4: 50}


def test_a_gang_that_grows_while_it_runs_has_its_old_size_until_the_new_replicas_run() -> None:
    world = elastic(2, PS=1)
    world.pass_time(100)
    resize(world, PS=1, Worker=3)
    world.settle()
    world.pass_time(30)
    world.run()
    world.settle()
    world.pass_time(50)

    assert sizes(world) == {2: 130, 3: 50}
    assert work(world).restart_seconds == 0


def test_a_gang_that_shrinks_while_it_runs_goes_on_at_once() -> None:
    world = elastic(3, PS=1)
    world.pass_time(100)
    resize(world, PS=1, Worker=2)
    world.settle()
    world.pass_time(50)

    assert sizes(world) == {3: 100, 2: 50}


def test_service_ends_when_a_job_is_suspended_and_goes_on_when_it_is_resumed() -> None:
    world = running(2)
    world.pass_time(100)
    world.edit({"runPolicy": {"suspend": True}})
    world.settle()
    world.bury()
    world.settle()
    world.pass_time(1000)
    assert sizes(world) == {2: 100}

    world.edit({"runPolicy": {"suspend": False}})
    world.settle()
    start(world)
    world.pass_time(10)

    assert sizes(world) == {2: 110}


def test_a_finished_job_keeps_what_it_needed() -> None:
    world = running(2)
    world.pass_time(100)
    world.exit("dist-worker-0", 0)
    world.settle()
    world.pass_time(1000)
    world.settle()

    assert sizes(world) == {2: 100}
    assert work(world).kind


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    world = elastic(2)
    world.pass_time(100)
    world.withdraw()
    world.settle()
    start(world, Worker=2)
    world.pass_time(-5000)
    world.settle()
    assert sizes(world) == {2: 100}

    world.withdraw()
    world.settle()
    start(world, Worker=2)

    assert sizes(world) == {2: 100}
    assert (work(world).restart_seconds or 0) >= 0


def test_the_chief_and_the_parameter_servers_do_not_count() -> None:
    world = elastic(2, PS=3, Chief=1)
    world.pass_time(100)

    assert sizes(world) == {2: 100}


# ------------------------------------------------------------------------------------------------------------ reports


def test_the_rate_is_measured_from_the_first_report_on() -> None:
    world = elastic(2)
    world.pass_time(100)
    report(world, 10)
    world.pass_time(100)
    report(world, 110)
    world.pass_time(100)

    record = work_record(work(world), world.status.progress, world.now)

    assert (record.done, record.total) == (110, 1000)
    assert dict(record.rates()) == {2: 1.0}
    assert record.restart_seconds == 20 + 90


def test_a_rate_that_was_measured_is_kept_by_a_stretch_without_reports() -> None:
    world = elastic(2)
    report(world, 1)
    world.pass_time(100)
    report(world, 101)
    for size in (2, 4, 2):
        world.withdraw()
        world.settle()
        start(world, Worker=size)
        world.pass_time(300)

    record = work_record(work(world), world.status.progress, world.now)

    assert dict(record.rates()) == {2: 1.0}
    assert record.sizes[2].seconds == 700


def test_reports_cost_a_write_at_the_beginning_and_a_few_more_over_a_whole_life() -> None:
    world = elastic(2)
    total, own = 10_000, 0
    for step in range(0, total, 50):
        world.pass_time(50)
        before = writes(world)
        report(world, step, total)
        own += writes(world) - before - 1  # that of the report itself

    assert own <= 15


def test_a_promise_is_on_record_and_never_taken_back() -> None:
    world = elastic(1)
    report(world, 98, 100)
    world.pass_time(40)
    report(world, 99, 100)
    promise = work(world).believed_until
    world.pass_time(600)
    report(world, 100, 10**6)

    assert promise is not None
    assert promise < 200
    assert work(world).believed_until == promise


LIARS: dict[str, Callable[[int], tuple[int, int]]] = {
    "99 % for ever": lambda _: (99, 100),
    "always one step before the end": lambda minute: (minute + 1, minute + 2),
    "a total that shrinks": lambda minute: (10 + minute, max(11 + minute, 10**6 - minute * 10**5)),
    "done that jumps": lambda minute: (minute if minute < 10 else 9999, 10_000),
    "enormous steps": lambda minute: (10**15 - 1000 + minute, 10**15),
}


@pytest.mark.parametrize("name", LIARS)
def test_a_job_that_reports_falsely_is_put_forward_for_minutes(name: str) -> None:
    """Compared with a job of equal service that reports nothing, by what the scheduler would read of its status."""
    world, prior, ahead, found = elastic(1), SpeedupPrior(1), 0, 0.0
    for minute in range(8 * 60):
        report(world, *LIARS[name](minute))
        world.pass_time(60)
        record = work_record(work(world), world.status.progress, world.now)
        found = estimate_work(record, KindHistory(), prior).remaining
        ahead += found < attained_level(record.service(prior), prior)

    assert ahead <= 0.11 * 8 * 60
    assert found >= attained_level(8 * 3600, prior)


def test_a_program_that_counts_anew_is_measured_anew() -> None:
    world = elastic(2)
    report(world, 500)
    world.pass_time(400)
    report(world, 10)
    world.pass_time(100)
    report(world, 210)

    assert dict(work_record(work(world), world.status.progress, world.now).rates()) == {2: 2.0}


def rates(world: World) -> dict[int, float]:
    return dict(work_record(work(world), world.status.progress, world.now).rates())


def test_what_passes_before_the_first_step_is_done_is_no_part_of_a_rate() -> None:
    """Programs say that nothing is done yet before they compile their first step, or go on from a checkpoint."""
    world = elastic(2)
    report(world, 0)
    world.pass_time(300)
    report(world, 500)
    world.pass_time(100)
    report(world, 600)

    assert rates(world) == {2: 1.0}


def test_steps_are_measured_though_the_program_began_with_a_percentage() -> None:
    """HuggingFace Transformers does, at each start; and Keras names an epoch before its steps."""
    world = elastic(2)
    for unit in (Unit.PERCENT, Unit.EPOCHS):
        report(world, 0, 100, unit)
        report(world, 3, 100, unit)
    report(world, 100)
    world.pass_time(100)
    report(world, 200)

    assert rates(world) == {2: 1.0}


def test_a_start_that_is_reported_in_another_unit_takes_no_rates_away() -> None:
    world = elastic(2)
    report(world, 100)
    world.pass_time(100)
    report(world, 200)
    world.withdraw()
    world.settle()
    start(world, Worker=4)
    report(world, 0, 100, Unit.PERCENT)
    report(world, 3, 6, Unit.EPOCHS)
    world.pass_time(10)
    report(world, 190)
    world.pass_time(100)
    report(world, 390)

    assert rates(world) == {2: 1.0, 4: 2.0}


def test_a_program_that_changes_its_unit_again_and_again_causes_few_writes() -> None:
    world = elastic(2)
    before = writes(world)
    for number in range(100):
        world.pass_time(10)
        report(world, 1 + number, 1000, (Unit.STEPS, Unit.PERCENT, Unit.EPOCHS)[number % 3])

    assert writes(world) - before - 100 <= 15


def test_rates_in_another_unit_are_dropped_if_the_program_stays_with_it() -> None:
    world = elastic(2)
    report(world, 1)
    world.pass_time(100)
    report(world, 101)
    world.withdraw()
    world.settle()
    start(world, Worker=2)
    report(world, 1, 100, Unit.PERCENT)
    world.pass_time(400)
    report(world, 4, 100, Unit.PERCENT)
    world.pass_time(100)
    report(world, 5, 100, Unit.PERCENT)
    world.pass_time(100)

    assert work(world).unit == "percent"
    assert rates(world) == {2: 0.01}


# --------------------------------------------------------------------------------------------------- nonsense in status

NONSENSE: list[Any] = [
    "x",
    5,
    [],
    {"sizes": {"a": [1, 1]}},
    {"sizes": {"0": [1, 1]}},
    {"sizes": {"1": [-1, 1]}},
    {"sizes": {"1": [1e300, 1]}},
    {"sizes": {"1": 1}},
    {"kind": "x" * 1000},
    {"unit": "lies"},
    {"believed": "for ever"},
    {"restart": True},
    {"running": {"size": 10**9, "asked": "2026-01-01T00:00:00Z", "began": "2026-01-01T00:00:00Z"}},
    {"running": {"size": 1, "asked": "now", "began": "now"}},
    {"running": {"size": 1, "asked": "2026-01-01T00:00:00Z", "began": 5}},
]


@pytest.mark.parametrize("nonsense", NONSENSE, ids=map(str, range(len(NONSENSE))))
def test_nonsense_instead_of_the_record_counts_as_none(nonsense: object) -> None:
    world = running(2)
    world.patch_job({"status": {"tarragon": {"work": nonsense}}})
    world.settle()
    world.pass_time(100)

    assert sizes(world) == {2: 100}


def test_a_beginning_in_the_past_or_the_future_is_bounded() -> None:
    world = running(2)
    for time in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"):
        stretch = {"size": 2, "asked": time, "began": time, "done": 0}
        world.patch_job({"status": {"tarragon": {"work": {"running": stretch}}}})
        world.settle()

        assert 0 <= sizes(world).get(2, 0) <= 1e9


# -------------------------------------------------------------------------------------------------------------- kinds


def decoded(body: dict[str, Any]) -> Any:
    world = World(body)
    job = decode_and_validate(world.framework, world.observed().object).job
    assert job is not None
    return job


def changed(**container: Any) -> dict[str, Any]:
    body = manifest({"Worker": 2})
    body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0] |= container
    return body


def test_jobs_that_differ_in_name_and_size_are_of_one_kind() -> None:
    other = copy.deepcopy(manifest({"Worker": 5}))
    other["metadata"]["name"] = "dist-2"

    assert kind_of(decoded(manifest({"Worker": 2}))) == kind_of(decoded(other))


@pytest.mark.parametrize(
    "container",
    [{"image": "other"}, {"command": ["other"]}, {"args": ["--lr=1"]}, {"resources": {"requests": {"cpu": "2"}}}],
    ids=str,
)
def test_jobs_that_run_something_else_are_of_another_kind(container: dict[str, Any]) -> None:
    assert kind_of(decoded(changed(**container))) != kind_of(decoded(changed()))


def test_jobs_of_another_namespace_are_of_another_kind() -> None:
    other = manifest({"Worker": 2})
    other["metadata"]["namespace"] = "n2"

    assert kind_of(decoded(manifest({"Worker": 2}))) != kind_of(decoded(other))


def test_the_prior_counts_the_workers_and_their_gpus() -> None:
    body = manifest({"PS": 8, "Worker": 4})
    container = body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"nvidia.com/gpu": 8}}

    assert counted_group(decoded(body)).type == ReplicaType("Worker")
    assert speedup_prior(decoded(body)) == SpeedupPrior(4, 8.0)
    assert speedup_prior(decoded(manifest({"Worker": 1}))) == SpeedupPrior(1, 1.0)


def test_a_record_of_service_without_rate_has_no_units() -> None:
    assert SizeRecord().extended(100, None) == SizeRecord(100, 0)
