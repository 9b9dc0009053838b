"""What Tarragon can't do yet fails a new job, and ends no job that runs with it since an earlier version."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.job.annotations import RESTART_ANNOTATION
from tarragon.kube.codec import decode, encode
from tarragon.operator.informers.cache_transforms import CachedJob
from tarragon.operator.informers.candidates import candidate_from
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.objects.settings import OperatorSettings
from tests.plan.world import World, is_idle, manifest

MARKS = {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1.0"}
ON_TEMPLATE = {"tfReplicaSpecs": {"Worker": {"template": {"metadata": {"annotations": MARKS}}}}}
WORKER = "spec.tfReplicaSpecs.Worker.template.metadata.annotations"
FAULTS = "; ".join(
    f"{path}: fractions of GPUs are not supported yet; ask for whole GPUs with nvidia.com/gpu, or remove it"
    for path in (f'{WORKER}["{name}"]' for name in MARKS)
)


def marked(**more: Any) -> dict[str, Any]:
    job = manifest({"PS": 1, "Worker": 2}, **more)
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["metadata"] = {"annotations": dict(MARKS)}
    return job


def running(edit: dict[str, Any] = ON_TEMPLATE, *, policy: str = "ExitCode", **more: Any) -> World:
    """An operator that did not look for fractions has started it."""
    job = manifest({"PS": 1, "Worker": 2}, policy=policy)
    job["metadata"] |= more
    world = World(job)
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    world.edit(edit)
    return world


def is_queued(world: World) -> bool:
    """Whether the scheduler decides about it."""
    found = decode(encode(world.job), CachedJob)
    candidate = candidate_from(
        TENSORFLOW, found, decode_and_validate(TENSORFLOW, found), world.status, OperatorSettings()
    )
    return candidate is not None and not candidate.has_invalid_spec


def test_a_new_job_that_asks_for_fractions_fails_with_every_place_and_has_nothing_made() -> None:
    world = World(marked())
    world.step()
    assert not is_queued(world)  # between the mark and the verdict
    world.settle()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert (failed.reason, failed.message) == ("TFJobFailedValidation", FAULTS)
    assert [(event.type, event.reason, event.message) for event in world.events] == [
        ("Warning", "TFJobFailedValidation", FAULTS)
    ]
    assert (world.pods, world.services) == ({}, {})
    assert world.tarragon["state"] == "Failed"


@pytest.mark.parametrize("field", ["annotations", "labels"])
def test_a_mark_on_the_job_fails_it_too(field: str) -> None:
    job = manifest({"Worker": 1})
    job["metadata"][field] = {"DRAGON_KUBESHARE": "true"}
    world = World(job)
    world.settle()

    assert world.tarragon["state"] == "Failed"


def test_it_is_told_with_what_else_is_wrong() -> None:
    world = World(marked(run_policy={"backoffLimit": -1}))
    world.settle()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.message == f"spec.runPolicy.backoffLimit: must be 0 or more, not -1; {FAULTS}"


def test_a_job_that_runs_with_it_already_goes_on_and_says_so_once() -> None:
    world = running()
    pods = world.pods
    world.settle()

    refused = world.status.condition("SpecRefused")
    assert refused is not None
    assert refused.message == f"{FAULTS}; the job had started before this was refused and runs on"
    assert world.conditions()["Running"] == "TFJobRunning"
    assert world.pods == pods
    assert [event.type for event in world.events if event.reason == "TFJobFailedValidation"] == ["Warning"]
    world.pass_time(60)
    assert is_idle(world.decide())


def test_a_replica_of_it_that_is_lost_is_replaced_as_it_was() -> None:
    world = running()
    world.settle()
    assert is_queued(world)
    world.exit("dist-worker-1", 137)
    world.settle()
    world.vanish("dist-ps-0")
    world.settle()

    assert (world.created["dist-worker-1"], world.created["dist-ps-0"]) == (2, 2)
    assert world.pods["dist-worker-1"]["metadata"]["annotations"].items() >= MARKS.items()


def test_a_gang_of_it_starts_again_whole() -> None:
    world = running(policy="OnFailure", annotations={RESTART_ANNOTATION: "gang"})
    world.exit("dist-worker-1", 1)
    world.settle()

    assert (world.created["dist-worker-0"], world.created["dist-worker-1"]) == (2, 2)


def test_it_ends_as_any_other_and_the_condition_goes_when_the_marks_do() -> None:
    world = running()
    world.settle()
    world.edit({"tfReplicaSpecs": {"Worker": {"template": {"metadata": None}}}})
    world.settle()
    assert "SpecRefused" not in world.conditions()

    world.exit("dist-worker-0", 0)
    world.settle()
    assert world.tarragon["state"] == "Succeeded"


def test_a_slip_in_such_a_job_is_met_as_in_any_other() -> None:
    world = running()
    world.settle()
    world.edit({"tfReplicaSpecs": {"Worker": {"replicas": "two"}}})
    world.settle()

    refused = world.status.condition("SpecRefused")
    assert refused is not None
    assert refused.message.startswith(
        'spec.tfReplicaSpecs.Worker.replicas: must be a whole number, not the text "two"; '
    )
    assert refused.message.endswith("; until this is fixed, the job keeps its last valid spec and gets no new pods")
    assert not is_queued(world)


def test_one_that_waited_when_the_operator_was_upgraded_waits_until_it_is_mended() -> None:
    world = World(manifest({"Worker": 2}))
    world.settle()
    world.edit(ON_TEMPLATE)
    world.settle()
    assert "SpecRefused" in world.conditions()
    assert world.tarragon["state"] == "Waiting"
    assert not is_queued(world)

    world.edit({"tfReplicaSpecs": {"Worker": {"template": {"metadata": None}}}})
    assert is_queued(world)
    world.admit()
    world.settle()
    assert sorted(world.pods) == ["dist-worker-0", "dist-worker-1"]
    assert "SpecRefused" not in world.conditions()


def test_one_that_had_its_places_when_the_operator_was_upgraded_starts() -> None:
    """Else it would keep them from others, without a pod."""
    world = World(manifest({"Worker": 2}))
    world.settle()
    world.admit()
    world.edit(ON_TEMPLATE)
    world.settle()

    assert sorted(world.pods) == ["dist-worker-0", "dist-worker-1"]


def test_one_that_is_resumed_begins_anew_and_does_not_start() -> None:
    world = running({"runPolicy": {"suspend": True}, **ON_TEMPLATE})
    world.settle()
    assert world.tarragon["state"] == "Suspended"

    world.edit({"runPolicy": {"suspend": False}})
    world.settle()
    assert world.own_pods() == {}
    assert not is_queued(world)
    assert "SpecRefused" in world.conditions()
