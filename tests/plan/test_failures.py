from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.model import Replica
from tarragon.job.status import JobStatus
from tests.plan.world import World, manifest


def running(
    replicas: dict[str, int] | None = None,
    *,
    policy: str = "Never",
    run_policy: dict[str, Any] | None = None,
    **spec: Any,
) -> World:
    world = World(manifest(replicas or {"PS": 1, "Worker": 2}, policy=policy, run_policy=run_policy, **spec))
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    return world


def restarts(status: JobStatus, replica: Replica) -> tuple[int, int]:
    """Replacements, and those of them that the infrastructure caused."""
    record = status.restarts.get(replica)
    return (record.pod_restarts, record.disruptions) if record is not None else (0, 0)


@pytest.mark.parametrize("name", ["dist-worker-1", "dist-ps-0", "dist-evaluator-0"])
def test_under_never_the_failure_of_any_replica_fails_the_job(name: str) -> None:
    world = running({"PS": 1, "Worker": 2, "Evaluator": 1})
    world.exit(name, 1, message="Traceback (most recent call last):\nValueError: no such data\n")
    world.settle()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert (failed.reason, failed.message) == (
        "TFJobFailed",
        f"{name.removeprefix('dist-')} failed with exit code 1: ValueError: no such data",
    )
    assert (world.events[-1].type, world.events[-1].reason) == ("Warning", "TFJobFailed")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (137, "worker-1 was killed (SIGKILL, exit code 137)"),
        (139, "worker-1 was ended by SIGSEGV (exit code 139)"),
        (134, "worker-1 failed with exit code 134: step 7 of 60, loss 0.125"),
    ],
)
def test_the_last_words_of_who_was_killed_are_not_told_as_its_reason(code: int, message: str) -> None:
    world = running({"Worker": 2})
    world.exit("dist-worker-1", code, message="step 7 of 60, loss 0.125")
    world.settle()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.message == message


def test_of_a_line_that_was_drawn_over_only_what_was_seen_last_is_told() -> None:
    world = running({"Worker": 2})
    world.exit("dist-worker-1", 1, message="1/30 [>..]\r30/30 [===] out of data\n")
    world.settle()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.message == "worker-1 failed with exit code 1: 30/30 [===] out of data"


def test_g14_a_worker_that_fails_for_good_fails_the_job_though_the_chief_runs() -> None:
    world = running({"Chief": 1, "Worker": 2})
    world.exit("dist-worker-1", 1)
    world.settle()

    assert world.tarragon["state"] == "Failed"


def test_the_first_failure_outlives_its_pod() -> None:
    world = running(run_policy={"cleanPodPolicy": "All"})
    world.pass_time(5)
    world.exit("dist-worker-1", 3, message="line 1\nline 2")
    first = world.now
    world.pass_time(1)
    world.exit("dist-worker-0", 1, message="connection reset")
    world.settle()

    failure = world.status.first_failure
    assert world.own_pods() == {}
    assert failure is not None
    assert (failure.replica, failure.exit_code, failure.message) == (Replica(WORKER, 1), 3, "line 1\nline 2")
    assert failure.at == first


def test_a_retryable_exit_code_gets_a_new_pod_after_it_is_on_record() -> None:
    world = running(policy="ExitCode")
    world.exit("dist-worker-1", 137)

    step = world.decide()
    assert step.status_patch is not None
    assert [delete.key.name for delete in step.deletes] == ["dist-worker-1"]

    world.settle()
    assert world.created["dist-worker-1"] == 2
    assert restarts(world.status, Replica(WORKER, 1)) == (1, 0)
    assert world.tarragon["restarts"]["total"] == 1
    assert any(event.reason == "TFJobRestarting" and event.type == "Warning" for event in world.events)


def test_a_permanent_exit_code_fails_the_job() -> None:
    world = running(policy="ExitCode")
    world.exit("dist-worker-1", 1)
    world.settle()

    assert world.tarragon["state"] == "Failed"


@pytest.mark.parametrize("writes", range(6))
def test_a_crash_between_any_two_writes_counts_a_failure_once(writes: int) -> None:
    world = running(policy="ExitCode")
    world.exit("dist-worker-1", 137)
    world.step(writes)
    world.step(writes)
    world.settle()

    assert world.created["dist-worker-1"] == 2
    assert restarts(world.status, Replica(WORKER, 1)) == (1, 0)


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always", "ExitCode"])
def test_a_disruption_is_replaced_under_any_policy_and_is_no_failure(policy: str) -> None:
    world = running(policy=policy, run_policy={"backoffLimit": 0})
    world.disrupt("dist-worker-1")
    world.settle()

    assert world.created["dist-worker-1"] == 2
    assert restarts(world.status, Replica(WORKER, 1)) == (1, 1)
    assert world.tarragon["state"] != "Failed"


def test_a_pod_that_somebody_deletes_is_replaced_even_when_it_ends_well_at_the_signal() -> None:
    world = running({"Chief": 1, "Worker": 1})
    world.delete_pod("dist-chief-0")
    world.exit("dist-chief-0", 0)
    world.settle()

    assert world.tarragon["state"] == "Restarting"
    assert world.created["dist-chief-0"] == 2
    assert world.tarragon.get("finished") is None

    world.run()
    world.settle()
    assert world.tarragon["state"] == "Running"


def test_a_job_whose_decider_is_lost_is_restarting_until_it_runs_again() -> None:
    world = running({"Chief": 1, "Worker": 1})
    world.disrupt("dist-chief-0")
    world.settle()
    assert world.tarragon["state"] == "Restarting"

    world.run()
    world.settle()
    assert world.tarragon["state"] == "Running"


def test_who_ends_again_and_again_is_started_later_and_later() -> None:
    world = running(policy="ExitCode")
    pauses = []
    for _ in range(4):
        world.exit("dist-worker-1", 137)
        world.settle()
        step = world.decide()
        is_back = "dist-worker-1" in world.pods
        pause = 0.0 if is_back or step.requeue_at is None else (step.requeue_at - world.now).total_seconds()
        pauses.append(pause)
        world.pass_time(pause)
        world.settle()
        world.run()
        world.settle()

    assert pauses == [0, 1, 2, 4]
    assert world.created["dist-worker-1"] == 5


def test_restarts_of_the_kubelet_are_counted_once_and_survive_their_pod() -> None:
    world = running(policy="OnFailure")
    world.restart_in_place("dist-worker-1", 1)
    world.settle()
    world.restart_in_place("dist-worker-1", 3)
    world.settle()
    assert world.tarragon["restarts"]["total"] == 3

    world.vanish("dist-worker-1")
    world.settle()
    world.run()
    world.restart_in_place("dist-worker-1", 2)
    world.settle()
    assert world.tarragon["restarts"]["total"] == 5


def test_g24_as_many_restarts_as_the_backoff_limit_fail_the_job_and_all_its_pods_go() -> None:
    world = running(policy="OnFailure", run_policy={"backoffLimit": 2, "cleanPodPolicy": "None"})
    world.restart_in_place("dist-worker-0", 1)
    world.settle()
    assert world.tarragon["state"] == "Running"

    world.restart_in_place("dist-worker-1", 1)
    world.settle()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert (failed.reason, failed.message) == (
        "BackoffLimitExceeded",
        "2 failures reach the backoffLimit of 2; worker-0 has failed once",
    )
    assert world.own_pods() == {}
    assert world.status.first_failure is not None


def test_a_backoff_limit_of_0_allows_no_restart() -> None:
    world = running(policy="ExitCode", run_policy={"backoffLimit": 0})
    world.exit("dist-worker-1", 137)
    world.settle()

    assert world.conditions()["Failed"] == "BackoffLimitExceeded"
    assert world.created["dist-worker-1"] == 1


def test_a_failure_that_no_restart_follows_is_on_record_but_is_no_restart_for_users() -> None:
    world = running(policy="ExitCode", run_policy={"backoffLimit": 2, "cleanPodPolicy": "All"})
    world.exit("dist-worker-1", 137)
    world.settle()
    world.run()
    world.settle()
    assert world.tarragon["restarts"]["total"] == 1

    world.exit("dist-worker-1", 137)
    world.settle()
    world.settle()

    assert world.conditions()["Failed"] == "BackoffLimitExceeded"
    assert world.own_pods() == {}
    assert restarts(world.status, Replica(WORKER, 1)) == (2, 0)
    assert world.tarragon["restarts"]["total"] == 1


def test_a_failure_whose_pod_was_replaced_is_a_restart_also_if_the_job_fails_at_once() -> None:
    world = running(policy="ExitCode")
    world.exit("dist-worker-1", 137)
    world.settle()
    assert world.created["dist-worker-1"] == 2

    world.exit("dist-worker-0", 1)
    world.settle()

    assert world.conditions()["Failed"] == "TFJobFailed"
    assert world.tarragon["restarts"]["total"] == 1


def test_a_job_that_runs_longer_than_its_deadline_fails_and_is_looked_at_just_then() -> None:
    world = running(run_policy={"activeDeadlineSeconds": 60, "cleanPodPolicy": "None"})
    due = world.decide().requeue_at
    assert due == world.now + dt.timedelta(seconds=60)

    world.pass_time(59)
    world.settle()
    assert world.tarragon["state"] == "Running"

    world.pass_time(1)
    world.settle()
    assert world.conditions()["Failed"] == "DeadlineExceeded"
    assert world.own_pods() == {}


def test_time_in_the_queue_does_not_count_against_the_deadline() -> None:
    world = World(manifest({"Worker": 1}, run_policy={"activeDeadlineSeconds": 60}))
    world.settle()
    world.pass_time(3600)
    world.settle()
    world.admit()
    world.settle()

    assert world.tarragon["state"] == "Starting"
    assert world.status.start_time == world.now


def test_a_worker_that_comes_to_grief_is_tolerated_where_workers_may_come_and_go() -> None:
    world = running({"PS": 1, "Worker": 3}, enableDynamicWorker=True)
    world.exit("dist-worker-2", 1)
    world.settle()
    assert world.tarragon["state"] == "Running"

    world.exit("dist-worker-0", 1)
    world.settle()
    assert world.tarragon["state"] == "Failed"


def test_where_all_workers_decide_none_is_tolerated_to_fail() -> None:
    world = running({"Worker": 2}, enableDynamicWorker=True, successPolicy="AllWorkers")
    world.exit("dist-worker-1", 1)
    world.settle()

    assert world.tarragon["state"] == "Failed"


def test_an_end_is_an_end() -> None:
    world = running(policy="OnFailure")
    world.exit("dist-worker-0", 0)
    world.settle()
    ended = world.conditions()

    world.stranger("dist-worker-9")
    world.edit({"tfReplicaSpecs": {"Worker": {"replicas": 5}}, "runPolicy": {"suspend": True}})
    world.settle()

    assert world.conditions() == ended
    assert world.created["dist-worker-2"] == 0


def test_many_failures_at_once_are_told_in_one_sentence() -> None:
    world = running({"Worker": 6})
    for index in (2, 3, 5):
        world.exit(f"dist-worker-{index}", 2)
    world.settle()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.message == "worker-2 (and worker 3,5) failed with exit code 2"


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_failure_is_not_blamed_on_a_replica_that_only_lost_the_connection(seconds: float) -> None:
    """Of both ends only the whole second is known, by the clocks of two nodes."""
    world = running({"Worker": 2})
    world.exit("dist-worker-0", 1, message="ConnectionResetError: [Errno 104] Connection reset by peer")
    world.pass_time(seconds)
    world.exit("dist-worker-1", 1, message="ValueError: bad shard 17")
    world.settle()

    assert world.status.first_failure is not None
    assert world.status.first_failure.replica == world.replica("dist-worker-1")
    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.message == "worker-1 (and worker-0) failed with exit code 1: ValueError: bad shard 17"


def test_a_lost_connection_is_the_first_failure_if_the_other_one_came_later() -> None:
    world = running({"Worker": 2})
    world.exit("dist-worker-0", 1, message="ConnectionRefusedError: [Errno 111] Connection refused")
    world.pass_time(2)
    world.exit("dist-worker-1", 1, message="ValueError: bad shard 17")
    world.settle()

    assert world.status.first_failure is not None
    assert world.status.first_failure.replica == world.replica("dist-worker-0")


def test_of_two_that_lost_a_connection_the_first_one_counts() -> None:
    world = running({"Worker": 2})
    world.exit("dist-worker-1", 1, message="BrokenPipeError: [Errno 32] Broken pipe")
    world.pass_time(1)
    world.exit("dist-worker-0", 1, message="tensorflow.errors.UnavailableError: Socket closed")
    world.settle()

    assert world.status.first_failure is not None
    assert world.status.first_failure.replica == world.replica("dist-worker-1")


def test_in_a_count_the_failed_are_failed_and_the_running_run() -> None:
    world = running({"Worker": 3}, run_policy={"cleanPodPolicy": "None"})
    world.exit("dist-worker-1", 1)
    world.settle()

    counts = world.status.replica_statuses[WORKER]
    assert (counts.active, counts.succeeded, counts.failed) == (2, 0, 1)
    world.vanish("dist-worker-1")
    world.settle()
    assert world.status.replica_statuses[WORKER].failed == 1
