"""A job whose user has made a slip in an editor goes on by its last good reading, whoever restarts meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.frameworks.tensorflow.replica_types import ROLES
from tarragon.job.annotations import RESTART_ANNOTATION
from tarragon.job.last_valid_spec import JobIdentity, decode_job, encode_job
from tarragon.job.model import Replica
from tarragon.kube.meta import Key
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tests.plan.world import World, is_idle, manifest

SLIP = {"tfReplicaSpecs": {"Worker": {"replicas": "two"}}}
LOST_TYPE = {"tfReplicaSpecs": {"Worker": None}}
MENDED = {"tfReplicaSpecs": {"Worker": {"replicas": 2}}}


def slipped(
    policy: str = "ExitCode", edit: dict[str, Any] = SLIP, run_policy: dict[str, Any] | None = None, **spec: Any
) -> World:
    world = World(manifest({"PS": 1, "Worker": 2}, policy=policy, run_policy=run_policy or {}, **spec))
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    world.edit(edit)
    world.settle()
    return world


@pytest.mark.parametrize("edit", [SLIP, LOST_TYPE, {"tfReplicaSpecs": None}, {"runPolicy": {"backoffLimit": -1}}])
def test_a_job_whose_edit_makes_no_sense_ends_all_the_same(edit: dict[str, Any]) -> None:
    world = slipped(edit=edit)
    assert world.conditions()["SpecRefused"] == "TFJobFailedValidation"
    world.exit("dist-worker-0", 0)
    world.settle()

    assert world.tarragon["state"] == "Succeeded"
    assert world.status.completion_time == world.now
    assert world.services == {}


def test_it_says_what_is_wrong_and_what_goes_on() -> None:
    world = slipped()
    refused = world.status.condition("SpecRefused")

    assert refused is not None
    assert refused.message == (
        'spec.tfReplicaSpecs.Worker.replicas: must be a whole number, not the text "two"; '
        "until this is fixed, the job keeps its last valid spec and gets no new pods"
    )


def test_what_is_as_long_as_a_book_does_not_stand_in_a_condition_as_a_whole() -> None:
    book = "x" * 200_000
    annotated = manifest({"Worker": 1})
    annotated["metadata"]["annotations"] = {RESTART_ANNOTATION: book}
    worlds = [World(annotated), World(manifest({"Worker": 1}, run_policy={book: 1}))]
    for world in worlds:
        world.settle()

    messages = [condition.message for world in worlds for condition in world.status.conditions]
    messages += [event.message for world in worlds for event in world.events]
    assert any(message.startswith(f'metadata.annotations["{RESTART_ANNOTATION}"]: ') for message in messages)
    assert any(message.endswith("xxx'; write gang or replica, or remove it") for message in messages)
    assert any(message.startswith("spec.runPolicy.xxx") for message in messages)
    assert max(map(len, messages)) < 1000


def test_a_failure_for_good_fails_it() -> None:
    world = slipped()
    world.exit("dist-worker-1", 1, message="no such data")
    world.settle()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.message == "worker-1 failed with exit code 1: no such data"


def test_who_is_to_be_replaced_is_on_record_at_once_and_replaced_when_the_edit_is_mended() -> None:
    world = slipped()
    world.exit("dist-worker-1", 137)
    world.settle()
    assert world.status.restarts[Replica(WORKER, 1)].pod_restarts == 1
    assert world.pods["dist-worker-1"]["status"]["phase"] == "Failed"

    world.vanish("dist-worker-1")
    world.settle()
    assert world.created["dist-worker-1"] == 1
    world.edit(MENDED)
    world.settle()
    assert world.created["dist-worker-1"] == 2
    assert world.tarragon["restarts"]["total"] == 1


def test_who_has_finished_meanwhile_is_not_run_again() -> None:
    world = slipped()
    world.exit("dist-worker-1", 0)
    world.settle()
    world.vanish("dist-worker-1")
    world.edit(MENDED)
    world.settle()

    assert world.created["dist-worker-1"] == 1


def test_its_limits_hold() -> None:
    late, often = slipped(run_policy={"activeDeadlineSeconds": 60}), slipped(run_policy={"backoffLimit": 1})
    late.pass_time(60)
    often.exit("dist-worker-1", 137)
    for world in (late, often):
        world.settle()

    assert late.conditions()["Failed"] == "DeadlineExceeded"
    assert often.conditions()["Failed"] == "BackoffLimitExceeded"
    assert late.own_pods() == {}
    assert sorted(often.own_pods()) == ["dist-worker-1"]


def test_who_suspends_it_is_heard_whatever_else_is_wrong() -> None:
    world = slipped()
    world.edit({"runPolicy": {"suspend": True}})
    world.settle()

    assert world.tarragon["state"] == "Suspended"
    assert world.own_pods() == {}


def test_a_job_that_has_ended_is_cleaned_up_and_deleted_in_its_time_whatever_becomes_of_its_spec() -> None:
    world = slipped(edit={}, run_policy={"ttlSecondsAfterFinished": 100, "cleanPodPolicy": "All"})
    world.exit("dist-worker-0", 0)
    world.step(writes=1)
    world.edit(SLIP)
    world.settle()
    assert world.own_pods() == {}
    due = world.decide().requeue_at
    assert due is not None

    world.now = due
    world.step()
    assert world.deleted_job


def test_a_job_that_never_made_sense_is_deleted_in_its_time_too() -> None:
    world = World(manifest({"PS": 1}, run_policy={"ttlSecondsAfterFinished": 100}))
    world.settle()
    assert not world.deleted_job

    world.pass_time(100)
    world.step()
    assert world.deleted_job


def test_a_job_that_waits_goes_on_waiting_until_it_is_mended() -> None:
    world = World(manifest({"Worker": 2}))
    world.settle()
    world.edit(SLIP)
    world.settle()
    assert "SpecRefused" in world.conditions()

    world.edit(MENDED)
    world.admit()
    world.settle()
    assert sorted(world.pods) == ["dist-worker-0", "dist-worker-1"]
    assert "SpecRefused" not in world.conditions()


def test_a_gang_that_restarts_as_one_does_so_when_the_edit_is_mended() -> None:
    body = manifest({"Worker": 2}, policy="OnFailure")
    body["metadata"]["annotations"] = {RESTART_ANNOTATION: "gang"}
    world = World(body)
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    world.edit(SLIP)
    world.exit("dist-worker-1", 1)
    world.settle()
    assert world.pods["dist-worker-0"]["status"]["phase"] == "Running"

    world.edit(MENDED)
    world.settle()
    assert (world.created["dist-worker-0"], world.created["dist-worker-1"]) == (2, 2)
    assert world.tarragon["restarts"]["total"] == 1


def test_a_job_whose_scheduler_is_another_keeps_its_pods() -> None:
    body = manifest({"Worker": 2})
    body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"] = "default-scheduler"
    world = World(body)
    world.settle()
    world.edit(LOST_TYPE)
    world.settle()

    assert not any("deletionTimestamp" in pod["metadata"] for pod in world.pods.values())
    assert is_idle(world.decide())


def test_what_is_kept_of_a_job_is_all_but_its_templates() -> None:
    body = manifest(
        {"Chief": 1, "PS": 1, "Worker": 2},
        policy="ExitCode",
        run_policy={
            "cleanPodPolicy": "All",
            "backoffLimit": 3,
            "ttlSecondsAfterFinished": 5,
            "activeDeadlineSeconds": 9,
            "suspend": True,
        },
        successPolicy="AllWorkers",
        enableDynamicWorker=True,
        **{"min-instances": 1, "max-instances": 4},
    )
    body["metadata"] |= {"uid": "u", "annotations": {RESTART_ANNOTATION: "gang", "of": "others"}}
    job = decode_and_validate(TENSORFLOW, body).job
    assert job is not None
    identity = JobIdentity(
        kind="TFJob", api_version="kubeflow.org/v1", generation=job.dialect, key=Key("n1", "dist"), uid="u"
    )
    kept = decode_job(encode_job(job), identity, ROLES)

    assert kept is not None
    assert (kept.run_policy, kept.elastic_policy, kept.requested_size()) == (
        job.run_policy,
        job.elastic_policy,
        job.requested_size(),
    )
    assert kept.success_policy == job.success_policy
    assert [(group.restart_policy, group.role, group.may_fail) for group in kept.replica_specs] == [
        (group.restart_policy, group.role, group.may_fail) for group in job.replica_specs
    ]
    assert kept.annotations == {RESTART_ANNOTATION: "gang"}


def test_a_record_of_the_version_before_still_says_that_workers_may_fail() -> None:
    """That version recorded enableDynamicWorker of the job, and not which replicas may fail."""
    identity = JobIdentity(kind="TFJob", api_version="kubeflow.org/v1", generation="g", key=Key("n1", "dist"), uid="u")
    group = {"wish": 1, "policy": "Never"}

    kept = decode_job(
        {"replicas": {"PS": group, "Worker": group}, "cleanPods": "None", "sparse": True}, identity, ROLES
    )

    assert kept is not None
    assert [(each.type, each.may_fail) for each in kept.replica_specs] == [("PS", False), ("Worker", True)]


@pytest.mark.parametrize("nonsense", [None, [], {"replicas": []}, {"replicas": {"Worker": {"wish": -1}}}, {"x": 1}])
def test_what_somebody_has_garbled_counts_as_absent(nonsense: Any) -> None:
    identity = JobIdentity(kind="TFJob", api_version="kubeflow.org/v1", generation="g", key=Key("n1", "dist"), uid="u")

    assert decode_job(nonsense, identity, ROLES) is None
