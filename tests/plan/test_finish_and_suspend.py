from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.status import ReplicaStatus
from tests.plan.world import World, manifest


def running(run_policy: dict[str, Any] | None = None) -> World:
    world = World(manifest({"PS": 1, "Worker": 2}, policy="OnFailure", run_policy=run_policy))
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    return world


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("All", []),
        ("Running", ["dist-worker-0"]),
        ("None", ["dist-ps-0", "dist-worker-0", "dist-worker-1"]),
    ],
)
def test_g23_the_clean_up_policy_says_which_pods_go_and_services_always_do(policy: str, kept: list[str]) -> None:
    world = running({"cleanPodPolicy": policy})
    world.exit("dist-worker-0", 0)
    world.settle()

    assert sorted(world.pods) == kept
    assert world.services == {}


def test_pods_that_have_not_started_yet_go_with_those_that_run() -> None:
    world = running({"cleanPodPolicy": "Running"})
    world.vanish("dist-worker-1")
    world.settle()
    world.exit("dist-worker-0", 0)
    world.settle()

    assert sorted(world.pods) == ["dist-worker-0"]


def test_what_still_runs_after_the_end_is_told_truly() -> None:
    kept, cleaned = running({"cleanPodPolicy": "None"}), running({"cleanPodPolicy": "Running"})
    for world in (kept, cleaned):
        world.exit("dist-worker-0", 0)
        world.settle()

    assert kept.status.replica_statuses == {PS: ReplicaStatus(active=1), WORKER: ReplicaStatus(active=1, succeeded=1)}
    assert cleaned.status.replica_statuses == {PS: ReplicaStatus(), WORKER: ReplicaStatus(succeeded=1)}


def test_clean_up_is_done_again_by_whoever_looks_after_a_crash() -> None:
    world = running({"cleanPodPolicy": "All"})
    world.exit("dist-worker-0", 0)
    world.step(writes=2)
    assert world.pods

    world.settle()
    assert (world.pods, world.services) == ({}, {})


def test_the_admission_stays_on_record_after_the_end() -> None:
    world = running()
    world.exit("dist-worker-0", 0)
    world.settle()

    assert world.status.admission is not None


@pytest.mark.parametrize("seconds", [0, 100])
def test_g25_a_finished_job_is_deleted_when_its_time_to_live_is_over(seconds: int) -> None:
    world = running({"ttlSecondsAfterFinished": seconds})
    world.exit("dist-worker-0", 0)
    world.step()
    assert world.status.completion_time == world.now

    if seconds:
        world.settle()
        assert world.decide().requeue_at == world.now + dt.timedelta(seconds=seconds)
        world.pass_time(seconds - 1)
        world.step()
        assert not world.deleted_job
        world.pass_time(1)
    world.step()
    assert world.deleted_job


def test_g22_a_suspended_job_gives_everything_back_in_one_write() -> None:
    world = running({"cleanPodPolicy": "None"})
    started = world.status.start_time
    world.edit({"runPolicy": {"suspend": True}})

    step = world.decide()
    assert step.status_patch is not None
    assert step.status_patch["status"]["tarragon"]["admission"] is None

    world.settle()
    assert (world.pods, world.services) == ({}, {})
    running_condition = world.status.condition("Running")
    assert running_condition is not None
    assert (running_condition.is_true, running_condition.reason) == (False, "TFJobSuspended")
    assert world.conditions() == {"Created": "TFJobCreated", "Suspended": "TFJobSuspended"}
    assert world.status.replica_statuses == {PS: ReplicaStatus(), WORKER: ReplicaStatus()}
    assert (world.tarragon["state"], world.status.start_time) == ("Suspended", started)
    assert [event.reason for event in world.events].count("TFJobSuspended") == 1


def test_a_resumed_job_queues_anew_and_its_time_to_run_begins_anew() -> None:
    world = running({"suspend": True, "activeDeadlineSeconds": 60})
    assert world.tarragon["state"] == "Suspended"
    world.pass_time(3600)
    world.edit({"runPolicy": {"suspend": False}})
    world.settle()
    assert (world.tarragon["state"], world.status.start_time) == ("Waiting", None)
    assert [event.reason for event in world.events].count("TFJobResumed") == 1

    world.admit()
    world.settle()
    world.run()
    world.settle()
    assert (world.tarragon["state"], world.status.start_time) == ("Running", world.now)


def test_a_job_created_suspended_never_starts() -> None:
    world = World(manifest({"Worker": 1}, run_policy={"suspend": True}))
    world.settle()

    assert [condition.type for condition in world.status.conditions] == ["Created", "Suspended"]
    assert world.status.start_time is None
    assert world.created.total() == 0


def test_what_has_finished_before_a_suspension_is_not_run_again_after_it() -> None:
    world = running()
    world.exit("dist-worker-1", 0)
    world.edit({"runPolicy": {"suspend": True}})
    world.settle()
    world.edit({"runPolicy": {"suspend": False}})
    world.settle()
    world.admit()
    world.settle()

    assert sorted(world.pods) == ["dist-ps-0", "dist-worker-0"]


def test_an_end_that_came_before_the_suspension_is_an_end() -> None:
    world = running()
    world.exit("dist-worker-0", 0)
    world.edit({"runPolicy": {"suspend": True}})
    world.settle()

    assert world.tarragon["state"] == "Succeeded"


def test_suspending_counts_no_restarts() -> None:
    world = running()
    world.edit({"runPolicy": {"suspend": True}})
    world.step()
    world.edit({"runPolicy": {"suspend": False}})
    world.step()
    world.admit()
    world.settle()

    assert world.tarragon["restarts"]["total"] == 0
