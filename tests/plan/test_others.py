from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.plan.step import Settings, Step
from tests.plan.world import World, manifest

BESIDE_ANOTHER = Settings(left_to={"TFJob": "training-operator (Deployment kubeflow/training-operator)"})


def job(annotations: Mapping[str, str], **run_policy: Any) -> dict[str, Any]:
    body = manifest({"Worker": 1}, run_policy=run_policy)
    body["metadata"]["annotations"] = dict(annotations)
    return body


@pytest.mark.parametrize("managed_by", [None, "kubeflow.org/training-operator"])
def test_a_job_that_another_operator_keeps_is_not_even_marked_and_says_whose_it_is(managed_by: str | None) -> None:
    world = World(job({}, **({"managedBy": managed_by} if managed_by else {})), BESIDE_ANOTHER)
    step = world.decide()

    (event,) = step.events
    assert step == Step(events=[event])
    assert (event.reason, event.type, event.once) == ("LeftToOtherOperator", "Normal", True)
    assert event.message == (
        "left to training-operator (Deployment kubeflow/training-operator); "
        'the annotation tarragon.dev/adopt: "true" gives it to Tarragon'
    )


@pytest.mark.parametrize(
    "ours",
    [
        job({"tarragon.dev/adopt": "true"}),
        job({}, managedBy="tarragon.dev/tarragon"),
    ],
)
def test_a_job_that_was_given_to_us_is_kept_beside_another_operator(ours: dict[str, Any]) -> None:
    world = World(ours, BESIDE_ANOTHER)

    assert world.decide().mark is not None


def test_a_job_that_was_ours_before_another_operator_came_stays_ours() -> None:
    world = World(job({}), Settings())
    world.settle()
    assert GENERATION_ANNOTATION in world.job["metadata"]["annotations"]
    before = world.decide()
    world.settings = BESIDE_ANOTHER

    assert world.decide() == before


def test_an_operator_of_other_kinds_is_nothing_to_us() -> None:
    world = World(job({}), Settings(left_to={"MPIJob": "mpi-operator (Lease default/mpi-operator)"}))

    assert world.decide().mark is not None
