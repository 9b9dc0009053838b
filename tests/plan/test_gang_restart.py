"""Gangs whose replicas are made anew only together: after a loss, and to become more."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.annotations import RESIZE_ANNOTATION, RESTART_ANNOTATION, RETRYABLE_EXIT_CODES_ANNOTATION
from tarragon.job.model import Replica
from tarragon.plan.objects.gang_round import MAX_ROUND, ROUND_ANNOTATION
from tests.plan.world import World, manifest

WORKERS = ("dist-worker-0", "dist-worker-1", "dist-worker-2")


def job(annotations: dict[str, str], workers: int = 3, **rest: Any) -> dict[str, Any]:
    body = manifest({"Worker": workers}, **rest)
    body["metadata"]["annotations"] = annotations
    return body


def running(body: dict[str, Any]) -> World:
    world = World(body)
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    return world


def gang(**rest: Any) -> World:
    """Three workers that are replaced together or not at all."""
    return running(job({RESTART_ANNOTATION: "gang"}, **{"policy": "OnFailure", **rest}))


def restarted(world: World) -> None:
    """Until the new gang runs, its back-off included."""
    world.settle()
    step = world.settle()
    if step.requeue_at is not None:
        world.pass_time(max(0.0, (step.requeue_at - world.now).total_seconds()))
    world.settle()
    world.run()
    world.settle()


def rounds(world: World) -> set[str]:
    return {pod["metadata"].get("annotations", {}).get(ROUND_ANNOTATION, "0") for pod in world.pods.values()}


def workers(number: int) -> dict[str, Any]:
    return {"tfReplicaSpecs": {"Worker": {"replicas": number}}}


def listed(world: World, name: str) -> str:
    """What the pod was told of the others."""
    env = world.pods[name]["spec"]["containers"][0]["env"]
    return next(str(one["value"]) for one in env if one["name"] == "TF_CONFIG")


def test_when_one_is_replaced_all_are_and_that_is_one_restart() -> None:
    world = gang(run_policy={"backoffLimit": 2})
    world.exit("dist-worker-1", 1, message="ValueError: NaN")
    world.step()

    assert all("deletionTimestamp" in world.pods[name]["metadata"] for name in ("dist-worker-0", "dist-worker-2"))
    restarting = world.status.condition("Restarting")
    assert restarting is not None
    assert restarting.message == (
        "all replicas are restarted together: worker-1 failed with exit code 1: ValueError: NaN"
    )
    restarted(world)
    assert [world.created[name] for name in WORKERS] == [2, 2, 2]
    assert world.tarragon["restarts"]["total"] == 1
    assert world.tarragon["state"] == "Running"


def test_the_second_restart_of_the_gang_reaches_a_backoff_limit_of_two_whoever_fell() -> None:
    world = gang(run_policy={"backoffLimit": 2})
    for name in ("dist-worker-1", "dist-worker-2"):
        world.exit(name, 1)
        restarted(world)

    assert world.conditions()["Failed"] == "BackoffLimitExceeded"


def test_those_who_fall_because_one_fell_are_neither_counted_nor_a_failure() -> None:
    world = gang(policy="ExitCode")
    world.exit("dist-worker-1", 137)
    world.pass_time(1)
    world.exit("dist-worker-0", 1, message="UnavailableError: Connection reset by peer")
    restarted(world)
    assert (world.tarragon["restarts"]["total"], world.tarragon["state"]) == (1, "Running")

    world.exit("dist-worker-1", 137)
    world.step()
    world.exit("dist-worker-2", 1)
    restarted(world)
    assert (world.tarragon["restarts"]["total"], world.tarragon["state"]) == (2, "Running")


def test_who_failed_for_good_first_fails_the_job_whoever_fell_after_it() -> None:
    world = gang(policy="ExitCode")
    world.exit("dist-worker-0", 1)
    world.pass_time(1)
    world.exit("dist-worker-1", 137)
    world.settle()

    assert world.tarragon["state"] == "Failed"


def test_a_disruption_restarts_the_gang_and_counts_against_no_limit() -> None:
    world = gang(policy="Never", run_policy={"backoffLimit": 0})
    world.disrupt("dist-worker-2")
    world.exit("dist-worker-0", 1, message="UnavailableError: Socket closed")
    restarted(world)

    assert world.tarragon["state"] == "Running"
    record = world.status.restarts[Replica(WORKER, 2)]
    assert (record.pod_restarts, record.disruptions) == (1, 1)
    assert list(world.status.restarts) == [Replica(WORKER, 2)]


@pytest.mark.parametrize("loss", ["vanish", "delete_pod"])
def test_a_pod_that_goes_without_having_ended_takes_its_gang_with_it_and_nothing_is_counted(loss: str) -> None:
    world = gang()
    getattr(world, loss)("dist-worker-1")
    restarted(world)

    assert [world.created[name] for name in WORKERS] == [2, 2, 2]
    assert world.tarragon["restarts"]["total"] == 0
    assert [event.reason for event in world.events].count("TFJobRestarting") == 1


def test_no_new_pod_is_made_while_an_old_one_is_there() -> None:
    world = gang()
    world.exit("dist-worker-1", 1)
    world.step()
    world.step()
    assert "dist-worker-1" not in world.pods

    assert list(world.step().creates) == []
    world.bury()
    world.settle()
    assert rounds(world) == {"1"}
    assert sorted(world.pods) == sorted(WORKERS)


@pytest.mark.parametrize("writes", range(9))
def test_a_crash_between_any_two_writes_leaves_no_gang_of_old_and_new(writes: int) -> None:
    world = gang()
    world.exit("dist-worker-1", 1)
    for _ in range(4):
        world.step(writes)
        assert len(rounds(world)) <= 1
        world.bury()
    restarted(world)

    assert [world.created[name] for name in WORKERS] == [2, 2, 2]
    assert world.tarragon["restarts"]["total"] == 1


def test_who_has_finished_stays_finished_when_the_gang_restarts() -> None:
    world = gang()
    world.exit("dist-worker-2", 0)
    world.settle()
    world.exit("dist-worker-1", 1)
    restarted(world)

    assert [world.created[name] for name in WORKERS] == [2, 2, 1]
    assert world.tarragon["finished"] == {"Worker": "2"}


def test_the_kubelet_starts_none_of_a_gang_again_by_itself() -> None:
    world = gang()

    assert {pod["spec"]["restartPolicy"] for pod in world.pods.values()} == {"Never"}


def test_a_gang_that_shrinks_is_restarted_as_those_that_stay_wait_for_those_that_went() -> None:
    world = gang()
    world.edit(workers(2))
    world.admit()
    restarted(world)

    assert sorted(world.pods) == ["dist-worker-0", "dist-worker-1"]
    assert rounds(world) == {"1"}
    assert "worker-2" not in listed(world, "dist-worker-0")
    assert world.tarragon["restarts"]["total"] == 0


def test_all_of_a_gang_wait_for_whoever_has_to_wait_longest() -> None:
    world = gang()
    pauses = []
    for _ in range(3):
        world.exit("dist-worker-1", 1)
        world.settle()
        step = world.decide()
        is_back = "dist-worker-1" in world.pods
        pauses.append(0.0 if is_back or step.requeue_at is None else (step.requeue_at - world.now).total_seconds())
        restarted(world)

    assert pauses == [0, 1, 2]
    assert [world.created[name] for name in WORKERS] == [4, 4, 4]


def test_a_gang_that_loses_its_places_and_gets_others_is_a_new_one() -> None:
    world = gang()
    world.withdraw()
    world.step(writes=1)
    world.admit()
    restarted(world)

    assert rounds(world) == {"1"}
    assert world.tarragon["state"] == "Running"


def test_a_gang_that_is_suspended_and_resumed_before_its_pods_are_gone_is_a_new_one() -> None:
    world = gang(run_policy={"suspend": False})
    world.edit({"runPolicy": {"suspend": True}})
    world.step(writes=1)
    world.edit({"runPolicy": {"suspend": False}})
    world.step()
    world.admit()
    restarted(world)

    assert rounds(world) == {"1"}
    assert world.tarragon["restarts"]["total"] == 0


def test_a_raised_wish_is_not_followed_and_says_why_and_what_to_do() -> None:
    world = running(job({}, 2))
    world.edit(workers(4))
    world.settle()

    condition = world.status.condition("NotGrown")
    assert condition is not None
    assert condition.reason == "NeedsRestart"
    assert condition.message == (
        "2 of 4 worker replicas are scheduled: the running replicas can't use more; "
        "set the annotation tarragon.dev/resize: restart to restart all replicas at the new size"
    )
    assert sorted(world.pods) == ["dist-worker-0", "dist-worker-1"]

    world.edit(workers(2))
    world.settle()
    assert "NotGrown" not in world.conditions()


def test_with_leave_to_restart_a_job_grows_when_the_scheduler_has_found_room() -> None:
    world = running(job({RESIZE_ANNOTATION: "restart"}, 2))
    world.edit(workers(3))
    world.settle()
    assert world.conditions()["NotGrown"] == "WaitsForRoom"
    assert sorted(world.pods) == ["dist-worker-0", "dist-worker-1"]

    world.admit()
    restarted(world)
    assert sorted(world.pods) == sorted(WORKERS)
    assert rounds(world) == {"1"}
    assert all("worker-2" in listed(world, name) for name in WORKERS)
    assert (world.tarragon["restarts"]["total"], world.tarragon["state"]) == (0, "Running")
    assert "NotGrown" not in world.conditions()


def test_a_job_that_may_restart_to_grow_shrinks_without() -> None:
    world = running(job({RESIZE_ANNOTATION: "restart"}, 3))
    world.edit(workers(2))
    world.admit()
    world.settle()

    assert sorted(world.pods) == ["dist-worker-0", "dist-worker-1"]
    assert [world.created[name] for name in WORKERS] == [1, 1, 1]


def test_a_job_of_another_scheduler_keeps_its_size_too_and_grows_by_a_restart_only() -> None:
    body = job({}, 2)
    body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"] = "default-scheduler"
    world = World(body)
    world.settle()
    world.run()
    world.settle()
    world.edit(workers(3))
    world.settle()
    assert world.conditions()["NotGrown"] == "NeedsRestart"
    assert sorted(world.pods) == ["dist-worker-0", "dist-worker-1"]

    world.patch_job({"metadata": {"annotations": {RESIZE_ANNOTATION: "restart"}}})
    restarted(world)
    assert sorted(world.pods) == sorted(WORKERS)
    assert rounds(world) == {"1"}


def test_the_annotations_that_nobody_understands_are_problems() -> None:
    world = World(job({RESTART_ANNOTATION: "all", RESIZE_ANNOTATION: "yes", RETRYABLE_EXIT_CODES_ANNOTATION: "1, 400"}))
    world.settle()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.message == (
        "metadata.annotations[\"tarragon.dev/restart\"]: unsupported value 'all'; write gang or replica, or remove it; "
        "metadata.annotations[\"tarragon.dev/resize\"]: unsupported value 'yes'; write restart, or remove it; "
        "metadata.annotations[\"tarragon.dev/retryable-exit-codes\"]: must be exit codes from 1 to 255, not '400'; "
        "write for example 1,42"
    )


def test_exit_codes_of_the_user_s_own_are_tried_again() -> None:
    world = running(job({RETRYABLE_EXIT_CODES_ANNOTATION: "1, 42"}, policy="ExitCode"))
    world.exit("dist-worker-1", 42)
    world.settle()
    assert world.tarragon["state"] == "Running"
    assert world.created["dist-worker-1"] == 2

    world.run()
    world.exit("dist-worker-1", 2)
    world.settle()
    assert world.tarragon["state"] == "Failed"


def test_a_job_that_runs_already_is_made_a_gang_by_the_annotation_and_restarts_as_one_from_then_on() -> None:
    world = running(job({}, policy="OnFailure"))
    world.patch_job({"metadata": {"annotations": {RESTART_ANNOTATION: "gang"}}})
    world.settle()
    assert world.created.total() == 3

    world.vanish("dist-worker-2")
    restarted(world)
    assert [world.created[name] for name in WORKERS] == [2, 2, 2]
    assert {pod["spec"]["restartPolicy"] for pod in world.pods.values()} == {"Never"}


def test_a_gang_whose_annotation_is_taken_away_goes_on_as_others_do() -> None:
    world = gang()
    world.exit("dist-worker-1", 1)
    restarted(world)
    world.patch_job({"metadata": {"annotations": {RESTART_ANNOTATION: None}}})
    world.settle()
    world.vanish("dist-worker-2")
    world.settle()

    assert [world.created[name] for name in WORKERS] == [2, 2, 3]
    assert rounds(world) == {"1"}


def test_a_gang_whose_record_was_lost_restarts_as_a_whole_all_the_same() -> None:
    world = gang()
    for _ in range(2):
        world.exit("dist-worker-1", 1)
        restarted(world)
    assert rounds(world) == {"2"}
    del world.job["status"]["tarragon"]
    world.admit()
    world.settle()
    world.exit("dist-worker-1", 1)
    restarted(world)

    assert [world.created[name] for name in WORKERS] == [4, 4, 4]
    assert rounds(world) == {"3"}


def test_a_gang_that_is_suspended_after_its_record_was_lost_is_a_new_one_too() -> None:
    world = gang(run_policy={"suspend": False})
    world.exit("dist-worker-1", 1)
    restarted(world)
    world.patch_job({"status": {"tarragon": {"gang": {"round": 0}}}})
    world.edit({"runPolicy": {"suspend": True}})
    world.step(writes=1)
    world.edit({"runPolicy": {"suspend": False}})
    world.step()
    world.admit()
    restarted(world)

    assert [world.created[name] for name in WORKERS] == [3, 3, 3]
    assert rounds(world) == {"2"}


@pytest.mark.parametrize("written", ["7", "9" * 5000])
def test_a_template_that_was_copied_from_a_pod_does_not_tell_the_round(written: str) -> None:
    body = job({RESTART_ANNOTATION: "gang"}, policy="OnFailure")
    metadata = {"annotations": {ROUND_ANNOTATION: written, "note": "kept"}}
    body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["metadata"] = metadata
    world = running(body)
    assert rounds(world) == {"0"}
    assert world.pods["dist-worker-0"]["metadata"]["annotations"]["note"] == "kept"

    world.exit("dist-worker-1", 1)
    restarted(world)
    assert [world.created[name] for name in WORKERS] == [2, 2, 2]


@pytest.mark.parametrize("written", ["9" * 5000, str(MAX_ROUND + 1), str(MAX_ROUND), "-1", "one"])
def test_whatever_somebody_writes_on_a_pod_the_job_goes_on(written: str) -> None:
    world = gang()
    world.pods["dist-worker-0"]["metadata"]["annotations"] = {ROUND_ANNOTATION: written}
    world.settle()
    world.exit("dist-worker-1", 1)
    restarted(world)

    assert world.tarragon["state"] == "Running"
    assert world.created["dist-worker-1"] == 2


def test_a_gang_that_shrank_while_its_annotation_was_away_is_healthy_when_it_comes_back() -> None:
    world = gang()
    world.exit("dist-worker-1", 1)
    restarted(world)
    world.patch_job({"metadata": {"annotations": {RESTART_ANNOTATION: None}}})
    world.settle()
    world.edit(workers(2))
    world.admit()
    world.settle()
    world.patch_job({"metadata": {"annotations": {RESTART_ANNOTATION: "gang"}}})
    world.settle()
    assert [world.created[name] for name in WORKERS] == [2, 2, 2]
    assert world.tarragon["gang"] == {"round": 1, "size": {"Worker": 2}, "whole": True}

    world.vanish("dist-worker-1")
    restarted(world)
    assert [world.created[name] for name in WORKERS] == [3, 3, 2]
    assert rounds(world) == {"2"}


def test_a_job_that_was_never_a_gang_has_none_on_record() -> None:
    world = running(job({}))

    assert world.status.gang_round is None
