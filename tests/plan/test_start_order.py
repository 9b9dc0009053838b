"""Replicas that start after others: a launcher is created only when all of its workers are ready."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.annotations import RESTART_ANNOTATION
from tarragon.job.tensorboard import LOG_DIR_ANNOTATION
from tests.plan.kubelets import shown_reason
from tests.plan.launcher_world import LAUNCHER, WORKER_0, WORKER_1, LauncherWorld, launcher_job, started

WORKERS = {WORKER_0, WORKER_1}


def admitted(job: dict[str, Any] | None = None) -> LauncherWorld:
    world = LauncherWorld(job or launcher_job())
    world.settle()
    world.admit()
    world.settle()
    return world


def suspended(job: dict[str, Any]) -> dict[str, Any]:
    job["spec"].setdefault("runPolicy", {})["suspend"] = True
    return job


def test_a_launcher_is_created_when_all_workers_are_ready() -> None:
    world = admitted()
    assert set(world.pods) == WORKERS

    world.run()
    world.settle()
    assert set(world.pods) == WORKERS

    world.make_ready(WORKER_0)
    world.settle()
    assert set(world.pods) == WORKERS

    world.make_ready(WORKER_1)
    world.settle()
    assert set(world.pods) == {*WORKERS, LAUNCHER}


def test_a_worker_that_is_ready_no_more_is_waited_for_again() -> None:
    world = admitted()
    world.run_ready(WORKER_0)
    world.settle()
    world.make_ready(WORKER_0, ready=False)
    world.run_ready(WORKER_1)
    world.settle()

    assert set(world.pods) == WORKERS


def test_a_worker_that_is_to_leave_is_not_ready() -> None:
    world = admitted()
    world.run_ready()
    world.delete_pod(WORKER_1)
    world.settle()

    assert LAUNCHER not in world.pods


@pytest.mark.parametrize("event", ["unready", "vanished"])
def test_a_launcher_that_exists_stays_when_workers_are_not_ready(event: str) -> None:
    world = started()
    if event == "unready":
        world.make_ready(WORKER_1, ready=False)
    else:
        world.vanish(WORKER_1)
    world.settle()

    assert world.created[LAUNCHER] == 1
    assert "deletionTimestamp" not in world.pods[LAUNCHER]["metadata"]


def test_a_launcher_without_workers_is_created_at_once() -> None:
    world = admitted(launcher_job(0))

    assert set(world.pods) == {LAUNCHER}


def test_workers_that_have_succeeded_are_waited_for_no_more() -> None:
    world = admitted()
    world.run_ready()
    world.exit(WORKER_1, 0)
    world.settle()

    assert LAUNCHER in world.pods


@pytest.mark.parametrize("workers", [0, 2])
def test_a_suspended_job_has_no_launcher(workers: int) -> None:
    """mpi#615: no worker exists, so all that exist are ready."""
    world = LauncherWorld(suspended(launcher_job(workers)))
    world.settle()

    assert world.created == {}


def test_a_resumed_job_starts_in_the_same_order() -> None:
    world = started()
    world.edit({"runPolicy": {"suspend": True}})
    world.settle()
    world.bury()
    world.settle()
    assert world.pods == {}

    world.edit({"runPolicy": {"suspend": False}})
    world.settle()
    world.admit()
    world.settle()
    assert set(world.pods) == WORKERS
    world.run_ready()
    world.settle()
    assert set(world.pods) == {*WORKERS, LAUNCHER}


def test_a_gang_that_restarts_as_a_whole_starts_in_the_same_order() -> None:
    job = launcher_job()
    job["metadata"]["annotations"] = {RESTART_ANNOTATION: "gang"}
    world = started(job)
    world.disrupt(WORKER_1)
    world.settle()
    assert set(world.pods) == WORKERS
    assert (world.created[WORKER_0], world.created[LAUNCHER]) == (2, 1)

    world.run_ready()
    world.settle()
    world.run_ready()
    world.settle()
    assert (world.created[WORKER_0], world.created[LAUNCHER]) == (2, 2)
    assert world.tarragon["state"] == "Running"


def test_a_gang_does_not_start_while_the_name_of_its_launcher_is_taken() -> None:
    world = LauncherWorld(launcher_job())
    world.stranger(LAUNCHER)
    world.settle()
    world.admit()
    world.settle()

    assert world.created == {}
    assert world.conditions()["Blocked"] == "NameTaken"


def test_what_a_launcher_waits_for_is_said_when_it_takes_long() -> None:
    world = admitted(launcher_job(4))
    world.run_ready(WORKER_0, WORKER_1)
    due = world.settle().requeue_at
    assert (world.tarragon["state"], shown_reason(world)) == ("Starting", ("", ""))
    assert due == world.now + dt.timedelta(seconds=60)

    world.now = due
    world.settle()
    assert world.conditions()["Stalled"] == "WaitsForReplicas"
    assert shown_reason(world) == ("WaitsForReplicas", "chief-0 waits: 2 of 4 workers are ready")

    world.run_ready()
    world.settle()
    world.run_ready()
    world.settle()
    assert shown_reason(world) == ("", "")
    assert world.tarragon["state"] == "Running"


def test_why_a_worker_does_not_start_is_said_first() -> None:
    world = admitted()
    world.pass_time(600)
    world.report(WORKER_1, {"phase": "Pending", "containerStatuses": [waiting("ImagePullBackOff")]})
    world.settle()

    assert shown_reason(world)[0] == "ImagePullBackOff"


def waiting(reason: str) -> dict[str, Any]:
    return {"name": "tensorflow", "ready": False, "restartCount": 0, "state": {"waiting": {"reason": reason}}}


def test_nothing_is_said_of_a_launcher_that_exists() -> None:
    world = started()
    world.make_ready(WORKER_1, ready=False)
    world.settle()
    world.pass_time(3600)
    world.settle()

    assert shown_reason(world) == ("", "")


def test_a_tensorboard_comes_after_the_launcher() -> None:
    job = launcher_job()
    job["metadata"]["annotations"] = {LOG_DIR_ANNOTATION: "/logs"}
    world = admitted(job)
    assert set(world.pods) == WORKERS

    world.run_ready()
    world.settle()
    assert set(world.pods) == {*WORKERS, LAUNCHER, "dist-tensorboard"}


def test_only_a_launcher_that_was_replaced_waits_where_it_did_not_wait_at_first() -> None:
    world = LauncherWorld(launcher_job(), starts_after=None)
    world.settle()
    world.admit()
    world.settle()
    assert set(world.pods) == {*WORKERS, LAUNCHER}

    world.disrupt(LAUNCHER)
    world.settle()
    assert set(world.pods) == WORKERS

    world.run_ready()
    world.settle()
    assert set(world.pods) == {*WORKERS, LAUNCHER}


def test_the_launcher_of_an_elastic_job_comes_back_though_a_worker_is_missing() -> None:
    elastic: dict[str, Any] = {"min-instances": 1, "max-instances": 3}
    world = started(launcher_job(**elastic), starts_after=None)
    world.disrupt(WORKER_1)
    world.disrupt(LAUNCHER)
    world.settle()

    assert world.created[LAUNCHER] == 2


def test_waiting_is_by_type() -> None:
    """Only replicas of the awaited type are waited for."""
    job = launcher_job()
    job["spec"]["tfReplicaSpecs"]["PS"] = job["spec"]["tfReplicaSpecs"]["Worker"] | {"replicas": 1}
    world = admitted(job)
    world.run_ready(WORKER_0, WORKER_1)
    world.settle()

    assert LAUNCHER in world.pods
    assert world.framework.start_order[0] == WORKER
