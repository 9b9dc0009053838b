from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.plan.others import is_to_be_asked_for
from tarragon.plan.step import Settings, Step
from tests.frameworks.listed_jobs import cluster, item, listed
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


def of_2018(**status: Any) -> dict[str, Any]:
    """With a status as the operators before v1alpha2 wrote it."""
    return {**cluster(ps=1, workers=1, RuntimeId="zz9z"), "status": {"reason": "", "controlPaused": False, **status}}


@pytest.mark.parametrize("asked", ["all", "one by one"])
@pytest.mark.parametrize("phase", ["CleanUp", "Done", "Failed"])
@pytest.mark.parametrize("state", ["Succeeded", "Failed"])
def test_a_job_that_an_operator_without_conditions_has_ended_is_not_run_again(
    asked: str, phase: str, state: str
) -> None:
    master = {"tf_replica_type": "MASTER", "state": state, "ReplicasStates": {state: 1}}
    body = of_2018(phase=phase, state=state, reason="as it was", replicaStatuses=[master])
    if asked == "one by one":
        body["metadata"]["annotations"] = {"tarragon.dev/adopt": "true"}
    world = World(body, Settings(adopts=asked == "all"))
    world.settle()
    world.admit()
    world.settle()

    assert not world.created
    assert world.tarragon["state"] == state
    assert {name: value for name, value in world.job["status"].items() if name != "tarragon"} == body["status"]


def test_of_a_job_that_an_operator_without_conditions_has_ended_nothing_is_said_and_nobody_is_asked() -> None:
    world = World(of_2018(phase="Done", state="Succeeded"))

    assert world.decide() == Step(events=[])
    assert not is_to_be_asked_for(world.observed().object)
    world = World(of_2018(phase="Running", state="Running"))
    assert [event.reason for event in world.decide().events] == ["LeftToOtherOperator"]
    assert is_to_be_asked_for(world.observed().object)


def test_a_job_of_ours_without_conditions_whose_record_was_dropped_stays_ended() -> None:
    world = World(cluster(ps=1, workers=1, runPolicy={"cleanPodPolicy": "All"}))
    world.settle()
    world.admit()
    world.settle()
    world.exit(next(name for name in world.pods if "-master-" in name), 0)
    world.settle()
    made = dict(world.created)

    world.patch_job({"status": {"tarragon": None}})
    world.settle()
    world.admit()
    world.settle()
    assert (world.created, world.pods, world.tarragon["state"]) == (made, {}, "Succeeded")


def test_a_job_without_conditions_that_made_no_sense_stays_failed_when_its_record_is_dropped() -> None:
    world = World(listed(item("WORKER")))
    world.settle()
    assert (world.job["status"]["phase"], world.job["status"]["state"]) == ("Failed", "Failed")

    world.patch_job({"status": {"tarragon": None}})
    world.settle()
    assert world.status.phase.is_final
    assert not world.created
