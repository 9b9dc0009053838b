from __future__ import annotations

from tarragon.job.model import GENERATION_ANNOTATION
from tests.plan.world import World, is_idle, manifest


def test_a_job_that_makes_no_sense_fails_with_every_problem_and_has_nothing_made() -> None:
    world = World(manifest({"PS": 1, "Evaluator": 2}, run_policy={"backoffLimit": -1}))
    world.settle()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.reason == "TFJobFailedValidation"
    assert failed.message == (
        "spec.runPolicy.backoffLimit: must be 0 or more, not -1; "
        "spec.tfReplicaSpecs: a job of PS and Evaluator alone never ends; add a Worker or a Chief; "
        "spec.tfReplicaSpecs.Evaluator.replicas: must be 1 or less, not 2; a job has one Evaluator"
    )
    assert [(event.type, event.reason) for event in world.events] == [("Warning", "TFJobFailedValidation")]
    assert (world.pods, world.services) == ({}, {})
    assert world.tarragon["state"] == "Failed"
    assert world.status.completion_time == world.now


def test_the_flat_generation_has_its_own_word_for_it() -> None:
    world = World(manifest({"PS": 1}, backoffLimit=1))
    world.settle()

    assert world.conditions()["Failed"] == "InvalidTFJobSpec"


def test_a_slip_in_an_editor_does_not_fail_a_job_that_trains() -> None:
    world = World(manifest({"Worker": 2}))
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    pods = world.pods

    world.edit({"tfReplicaSpecs": {"Worker": {"replicas": "two"}}})
    world.settle()
    assert world.conditions()["SpecRefused"] == "TFJobFailedValidation"
    assert world.conditions()["Running"] == "TFJobRunning"
    assert world.pods == pods
    assert [event.type for event in world.events if event.reason == "TFJobFailedValidation"] == ["Warning"]

    world.edit({"tfReplicaSpecs": {"Worker": {"replicas": 2}}})
    world.exit("dist-worker-0", 0)
    world.settle()
    assert "SpecRefused" not in world.conditions()
    assert world.tarragon["state"] == "Succeeded"


def test_a_job_marked_by_a_newer_tarragon_is_not_failed() -> None:
    job = manifest({"Worker": 1})
    job["metadata"]["annotations"] = {GENERATION_ANNOTATION: "kubeflow.org/v7"}
    world = World(job)
    world.settle()

    assert list(world.conditions()) == ["SpecRefused"]
    assert world.pods == {}


def test_a_refused_job_stays_refused_without_another_write() -> None:
    world = World(manifest({"PS": 1}))
    world.settle()
    world.pass_time(60)

    assert is_idle(world.decide())
