"""A job that requests a share of a GPU is queued like any other, and fails if the request is invalid."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.codec import decode, encode
from tarragon.operator.informers.cache_transforms import CachedJob
from tarragon.operator.informers.candidates import candidate_from
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.objects.settings import OperatorSettings
from tests.plan.world import World, manifest

SHARE = {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1.0"}
INVALID = {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "0.2", "kubeshare/gpu_mem": "1Gi"}
WORKER = "spec.tfReplicaSpecs.Worker.template.metadata.annotations"
PROBLEMS = (
    f'{WORKER}["kubeshare/gpu_limit"]: must be 0.5 or more, as kubeshare/gpu_request is, not 0.2; '
    f'{WORKER}["kubeshare/gpu_mem"]: must be a whole number of bytes, not the text "1Gi"; write "1073741824" for 1 GiB'
)


def sharing(marks: dict[str, str], **more: Any) -> dict[str, Any]:
    job = manifest({"PS": 1, "Worker": 2}, **more)
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["metadata"] = {"annotations": dict(marks)}
    return job


def is_queued(world: World) -> bool:
    """Whether the scheduler decides about it."""
    found = decode(encode(world.job), CachedJob)
    candidate = candidate_from(
        TENSORFLOW, found, decode_and_validate(TENSORFLOW, found), world.status, OperatorSettings()
    )
    return candidate is not None and not candidate.has_invalid_spec


@pytest.mark.parametrize("switch", [{}, {"DRAGON_KUBESHARE": "true"}, {"DRAGON_KUBESHARE": "false"}])
def test_a_job_that_requests_a_share_is_queued_whatever_dragon_s_switch_says(switch: dict[str, str]) -> None:
    job = sharing(SHARE)
    job["metadata"]["annotations"] = switch
    world = World(job)
    world.settle()

    assert is_queued(world)
    assert world.tarragon["state"] == "Waiting"
    assert not {"Failed", "SpecRefused"} & set(world.conditions())


def test_a_new_job_with_an_invalid_request_fails_with_every_problem_and_nothing_is_created() -> None:
    world = World(sharing(INVALID))
    world.step()
    assert not is_queued(world)
    world.settle()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert (failed.reason, failed.message) == ("TFJobFailedValidation", PROBLEMS)
    assert [(event.type, event.reason, event.message) for event in world.events] == [
        ("Warning", "TFJobFailedValidation", PROBLEMS)
    ]
    assert (world.pods, world.services) == ({}, {})
    assert world.tarragon["state"] == "Failed"


def test_a_share_on_the_job_instead_of_the_template_fails_it() -> None:
    job = manifest({"Worker": 1})
    job["metadata"]["annotations"] = SHARE
    world = World(job)
    world.settle()

    assert world.tarragon["state"] == "Failed"


def test_an_edit_that_makes_the_request_invalid_does_not_stop_a_job_that_runs() -> None:
    world = World(manifest({"PS": 1, "Worker": 2}))
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    world.edit({"tfReplicaSpecs": {"Worker": {"template": {"metadata": {"annotations": INVALID}}}}})
    world.settle()

    refused = world.status.condition("SpecRefused")
    assert refused is not None
    assert refused.message.startswith(PROBLEMS)
    assert world.conditions()["Running"] == "TFJobRunning"
    assert world.tarragon["state"] == "Running"
