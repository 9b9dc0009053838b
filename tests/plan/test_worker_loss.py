"""A launcher that ends because it has lost a worker has not failed; one that does not notice is replaced."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.mpi.worker_loss import JUDGEMENT_DELAY, STALE_GRACE, SUCCESS_DELAY, WORKER_LOST
from tarragon.kube.codec import format_time
from tarragon.kube.core import PODS
from tests.plan.launcher_world import LAUNCHER, WORKER_0, WORKER_1, LauncherWorld, launcher_job, started

ELASTIC: dict[str, Any] = {"min-instances": 1, "max-instances": 3}
NEVER: dict[str, Any] = {"launcher": "Never", "worker": "Never"}


def counted(world: LauncherWorld, name: str) -> int:
    record = world.status.restarts.get(world.replica(name))
    return record.counted_for_backoff_limit if record is not None else 0


def message(world: LauncherWorld, condition: str) -> str:
    found = world.status.condition(condition)
    return found.message if found is not None and found.is_true else ""


def later(at: dt.datetime, seconds: int) -> str:
    return format_time(at + dt.timedelta(seconds=seconds))


def come_back(world: LauncherWorld) -> None:
    """All that is missing is made anew and runs: first the workers, then the launcher."""
    for _ in range(3):
        world.settle_and_wait()
        world.pass_time(1)
        world.run_ready()
    world.settle()


def test_a_launcher_that_fails_by_itself_fails_the_job_under_never() -> None:
    world = started(launcher_job(**NEVER))
    world.exit(LAUNCHER, 1, message="ValueError: no such data")
    world.settle_and_wait()

    assert message(world, "Failed") == "chief-0 failed with exit code 1: ValueError: no such data"


def test_the_failure_of_a_launcher_is_judged_only_when_those_of_its_workers_are_known() -> None:
    world = started(launcher_job(**NEVER))
    world.exit(LAUNCHER, 255)

    step = world.settle()

    assert world.tarragon["state"] == "Running"
    assert step.requeue_at == world.now + JUDGEMENT_DELAY


def test_a_launcher_whose_clock_is_wrong_is_judged_at_once() -> None:
    world = started(launcher_job(**NEVER))
    world.pass_time(3600)
    world.exit(LAUNCHER, 255)
    world.pass_time(-3600)
    world.settle()

    assert world.tarragon["state"] == "Failed"


def test_a_launcher_without_workers_is_judged_at_once() -> None:
    world = started(launcher_job(0, **NEVER))
    world.exit(LAUNCHER, 1)
    world.settle()

    assert world.tarragon["state"] == "Failed"


@pytest.mark.parametrize("first", ["launcher", "worker"])
@pytest.mark.parametrize("seconds", [0, 2])
def test_under_never_a_crashed_worker_fails_the_job_and_is_named(first: str, seconds: int) -> None:
    """Whoever of the two is seen to end first."""
    world = started(launcher_job(**NEVER))
    ends = [(LAUNCHER, 255), (WORKER_1, 139)]
    for name, code in ends if first == "launcher" else reversed(ends):
        world.exit(name, code)
        world.settle()
        world.pass_time(seconds)
    world.settle_and_wait()

    assert world.tarragon["state"] == "Failed"
    assert message(world, "Failed") == "worker-1 was ended by SIGSEGV (exit code 139)"
    assert world.status.first_failure is not None
    assert world.status.first_failure.replica == world.replica(WORKER_1)


@pytest.mark.parametrize("policies", [{}, NEVER])
@pytest.mark.parametrize("loss", ["disrupted", "deleted", "vanished"])
def test_a_launcher_that_loses_a_worker_to_a_disruption_is_replaced_and_nothing_counts(
    policies: dict[str, Any], loss: str
) -> None:
    world = started(launcher_job(**policies, run_policy={"backoffLimit": 0}))
    {"disrupted": world.disrupt, "deleted": world.delete_pod, "vanished": world.vanish}[loss](WORKER_1)
    world.exit(LAUNCHER, 255)
    world.settle()
    assert world.tarragon["state"] == "Restarting"
    assert LAUNCHER not in world.pods

    come_back(world)

    assert world.tarragon["state"] == "Running"
    assert (world.created[LAUNCHER], world.created[WORKER_1], world.created[WORKER_0]) == (2, 2, 1)
    assert (counted(world, LAUNCHER), counted(world, WORKER_1)) == (0, 0)
    assert world.status.restarts[world.replica(LAUNCHER)].disruptions == 1


def test_a_worker_is_named_that_a_launcher_has_lost() -> None:
    world = started()
    world.vanish(WORKER_1)
    world.exit(LAUNCHER, 255)
    world.settle()

    assert message(world, "Restarting") == "chief-0 is replaced: it was disrupted (WorkerLost: worker-1)"
    assert world.status.restarts[world.replica(LAUNCHER)].reason == WORKER_LOST


@pytest.mark.parametrize("starts_after", [WORKER, None])
def test_a_launcher_comes_back_only_when_all_workers_are_ready_again(starts_after: Any) -> None:
    """Whether or not it waited for them at first."""
    world = started(starts_after=starts_after)
    world.disrupt(WORKER_1)
    world.exit(LAUNCHER, 255)
    world.settle_and_wait()
    assert set(world.pods) == {WORKER_0, WORKER_1}

    world.run(WORKER_1)
    world.settle_and_wait()
    assert LAUNCHER not in world.pods

    world.make_ready(WORKER_1)
    world.settle_and_wait()
    assert LAUNCHER in world.pods


@pytest.mark.parametrize(("launcher", "worker"), [("OnFailure", "Never"), ("Never", "OnFailure")])
def test_a_worker_that_crashes_each_time_counts_until_the_limit_and_its_launcher_does_not(
    launcher: str, worker: str
) -> None:
    world = started(launcher_job(launcher=launcher, worker=worker, run_policy={"backoffLimit": 2}))
    for crash in range(3):
        assert world.tarragon["state"] == "Running", crash
        world.pass_time(60)
        world.exit(WORKER_1, 139)
        world.exit(LAUNCHER, 255)
        come_back(world)

    assert world.conditions()["Failed"] == "BackoffLimitExceeded"
    assert (counted(world, LAUNCHER), counted(world, WORKER_1)) == (0, 3)
    assert "worker-1: exit code 139" in message(world, "Failed")


def test_a_worker_that_restarts_in_its_pod_takes_its_launcher_along_and_counts() -> None:
    world = started(launcher_job(launcher="Never", worker="Always"))
    world.restart_in_place(WORKER_1, 1)
    world.make_ready(WORKER_1)
    world.exit(LAUNCHER, 255)
    come_back(world)

    assert world.tarragon["state"] == "Running"
    assert (counted(world, LAUNCHER), counted(world, WORKER_1)) == (0, 1)
    assert world.created[WORKER_1] == 1


def test_an_old_restart_of_a_worker_excuses_no_later_failure() -> None:
    world = started(launcher_job(launcher="Never", worker="Always"))
    world.restart_in_place(WORKER_1, 1)
    world.make_ready(WORKER_1)
    world.exit(LAUNCHER, 255)
    come_back(world)
    world.pass_time(60)
    world.exit(LAUNCHER, 1)
    world.settle_and_wait()

    assert message(world, "Failed") == "chief-0 failed with exit code 1"


def test_a_replaced_worker_excuses_no_later_failure() -> None:
    world = started(launcher_job(**NEVER))
    world.vanish(WORKER_1)
    world.exit(LAUNCHER, 255)
    come_back(world)
    world.pass_time(60)
    world.exit(LAUNCHER, 1)
    world.settle_and_wait()

    assert message(world, "Failed") == "chief-0 failed with exit code 1"


def test_a_launcher_that_fails_while_a_worker_still_starts_is_not_counted() -> None:
    """As with AtStartup, when the image of a worker is pulled for longer than the launcher tries to connect."""
    world = LauncherWorld(launcher_job(**NEVER), starts_after=None)
    world.settle()
    world.admit()
    world.settle()
    world.run_ready(LAUNCHER, WORKER_0)
    world.settle()
    world.pass_time(10)
    world.exit(LAUNCHER, 255)
    come_back(world)

    assert world.tarragon["state"] == "Running"
    assert (world.created[LAUNCHER], counted(world, LAUNCHER)) == (2, 0)


def test_a_launcher_that_fails_when_a_node_is_lost_is_not_counted() -> None:
    """Kubernetes marks the pods of a lost node as not ready; nothing else changes at first."""
    world = started(launcher_job(**NEVER))
    world.report(WORKER_1, {"conditions": [{"type": "Ready", "status": "False"}]})
    world.exit(LAUNCHER, 255)
    world.settle_and_wait()

    assert world.tarragon["state"] == "Restarting"
    assert counted(world, LAUNCHER) == 0


def test_a_launcher_on_record_as_a_consequence_stays_one_when_the_worker_is_back() -> None:
    world = started(launcher_job(**NEVER))
    world.report(WORKER_1, {"conditions": [{"type": "Ready", "status": "False"}]})
    world.exit(LAUNCHER, 255)
    world.step(1)
    world.report(WORKER_1, {"conditions": []})
    come_back(world)

    assert world.tarragon["state"] == "Running"


@pytest.mark.parametrize("loss", ["disrupted", "vanished", "restarted"])
def test_a_launcher_that_does_not_notice_is_replaced_after_a_grace(loss: str) -> None:
    world = started(launcher_job(worker="Always", run_policy={"backoffLimit": 9}))
    if loss == "restarted":
        world.restart_in_place(WORKER_1, 1)
    elif loss == "disrupted":
        world.disrupt(WORKER_1)
    else:
        world.vanish(WORKER_1)
    world.settle()
    world.run_ready()
    before = world.pods[LAUNCHER]["metadata"]["uid"]
    due = world.settle().requeue_at
    assert due is not None
    assert dt.timedelta() < due - world.now <= STALE_GRACE
    assert world.pods[LAUNCHER]["metadata"]["uid"] == before

    world.now = due
    world.step()
    assert "deletionTimestamp" in world.pods[LAUNCHER]["metadata"]
    come_back(world)
    world.settle_and_wait()

    assert world.tarragon["state"] == "Running"
    assert world.created[LAUNCHER] == 2
    assert counted(world, LAUNCHER) == 0


def test_a_launcher_that_started_before_a_slow_worker_is_left_alone() -> None:
    """As with AtStartup: it connects when the worker is there."""
    world = LauncherWorld(launcher_job(), starts_after=None)
    world.settle()
    world.admit()
    world.settle()
    world.run_ready(LAUNCHER, WORKER_0)
    world.settle()
    world.pass_time(90)
    world.run_ready(WORKER_1)
    world.settle()
    world.pass_time(3600)
    world.settle()

    assert world.created[LAUNCHER] == 1
    assert world.tarragon["state"] == "Running"


def test_a_launcher_that_is_as_old_as_its_workers_is_left_alone() -> None:
    """It is created after all of them, but a second has 1,000 milliseconds, and API servers have several clocks."""
    world = LauncherWorld(launcher_job(), starts_after=None)
    world.settle()
    world.admit()
    world.settle()
    worker = world.pods[WORKER_1]
    world.pods[WORKER_1] = {**worker, "metadata": {**worker["metadata"], "creationTimestamp": later(world.now, 1)}}
    world.run_ready()
    world.pass_time(3600)
    world.settle()

    assert world.created[LAUNCHER] == 1


def test_a_launcher_is_created_after_all_its_workers() -> None:
    world = LauncherWorld(launcher_job(), starts_after=None)
    world.settle()
    world.admit()
    creates = [create for create in world.settled_creates() if create.resource is PODS]

    assert [create.body["metadata"]["name"] for create in creates] == [WORKER_0, WORKER_1, LAUNCHER]
    assert [create.is_sequential for create in creates] == [False, False, True]


def test_the_launcher_of_an_elastic_job_manages_by_itself() -> None:
    world = started(launcher_job(worker="OnFailure", **ELASTIC))
    world.disrupt(WORKER_1)
    world.settle()
    world.run_ready()
    world.pass_time(3600)
    world.settle()
    assert (world.created[LAUNCHER], world.created[WORKER_1]) == (1, 2)

    world.disrupt(WORKER_1)
    world.exit(LAUNCHER, 1)
    world.settle()

    assert counted(world, LAUNCHER) == 1


def test_an_evicted_launcher_is_replaced() -> None:
    world = started(launcher_job(**NEVER))
    world.disrupt(LAUNCHER)
    come_back(world)

    assert world.tarragon["state"] == "Running"
    assert (world.created[LAUNCHER], world.created[WORKER_0]) == (2, 1)


def test_a_worker_that_fails_fails_the_job_under_never_although_the_launcher_exits_with_0() -> None:
    world = started(launcher_job(**NEVER))
    world.exit(WORKER_1, 1)
    world.exit(LAUNCHER, 0)
    world.settle()

    assert message(world, "Failed").startswith("worker-1 failed with exit code 1")


def test_a_launchers_success_is_believed_once_the_ends_of_its_workers_would_be_known() -> None:
    world = started(launcher_job(**NEVER))
    world.exit(LAUNCHER, 0)

    step = world.settle()
    assert (world.tarragon["state"], step.requeue_at) == ("Running", world.now + SUCCESS_DELAY)

    world.pass_time(2)
    world.settle()
    assert message(world, "Succeeded")


@pytest.mark.parametrize("loss", ["deleted", "failed", "gone"])
def test_a_launcher_that_says_it_succeeded_after_it_lost_a_worker_runs_again(loss: str) -> None:
    """Open MPI 5.0's mpirun exits with 0 when it loses the daemon of a worker."""
    world = started()
    if loss == "failed":
        world.exit(WORKER_0, 137)
    else:
        world.delete_pod(WORKER_0)
    if loss == "gone":
        world.bury()
    world.pass_time(3)
    world.exit(LAUNCHER, 0)

    world.settle()
    world.bury()
    come_back(world)

    assert not message(world, "Succeeded")
    assert world.tarragon["state"] == "Running"
    world.pass_time(600)
    world.exit(LAUNCHER, 0)
    world.settle_and_wait()
    assert message(world, "Succeeded")


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_launcher_whose_end_is_known_only_after_its_worker_was_replaced_runs_again(seconds: int) -> None:
    """The new worker is created in the second in which the launcher ends, or in the next one."""
    world = started()
    world.pass_time(60)
    world.delete_pod(WORKER_0)
    world.bury()
    world.settle()
    assert world.created[WORKER_0] == 2

    world.pass_time(seconds)
    world.exit(LAUNCHER, 0)
    world.pass_time(-seconds)
    come_back(world)

    assert not message(world, "Succeeded")
    assert world.created[LAUNCHER] == 2


@pytest.mark.parametrize("policy", ["Never", "Always"])
@pytest.mark.parametrize("late", [1, 5])
def test_a_worker_counts_as_lost_when_it_ended_and_not_when_that_was_seen(policy: str, late: int) -> None:
    """The operator is slow: it replaces the worker after the launcher's end, which is reported last of all."""
    world = started(launcher_job(worker=policy))
    if policy == "Always":
        world.restart_in_place(WORKER_0, 1)
        world.make_ready(WORKER_0)
    else:
        world.exit(WORKER_0, 137)
    world.pass_time(1 + late)
    world.settle()

    world.pass_time(-late)
    world.exit(LAUNCHER, 0)
    world.pass_time(late)
    come_back(world)

    assert not message(world, "Succeeded")
    assert world.created[LAUNCHER] == 2


def test_a_launcher_that_succeeded_before_a_worker_failed_has_succeeded_though_it_is_known_last() -> None:
    world = started()
    world.exit(WORKER_0, 137)
    world.settle()

    world.pass_time(-1)
    world.exit(LAUNCHER, 0)
    world.pass_time(1)
    world.settle_and_wait()

    assert message(world, "Succeeded")


@pytest.mark.parametrize("job", [launcher_job(), launcher_job(**NEVER), launcher_job(runPolicy={"backoffLimit": 0})])
def test_a_launcher_that_succeeded_before_a_worker_failed_has_succeeded(job: dict[str, Any]) -> None:
    world = started(job)
    world.exit(LAUNCHER, 0)
    world.pass_time(1)
    world.exit(WORKER_0, 137)

    world.settle_and_wait()
    assert message(world, "Succeeded")
    assert world.created[WORKER_0] == 1
