"""Replicas whose places were taken: told first, gone when their time is over, and never taken for an end of the job."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.annotations import CHECKPOINT_SECONDS_ANNOTATION
from tarragon.job.eviction_notice import CHECKPOINT_REQUEST_ANNOTATION, EVICTION_TIME_ANNOTATION
from tarragon.job.model import Replica
from tarragon.job.status import Admission
from tarragon.kube.core import Node
from tarragon.kube.meta import Key
from tests.plan.test_displacement import node
from tests.plan.world import World, is_idle, manifest


def elastic(workers: int = 3, *, seconds: str = "30", policy: str = "Never", **spec: Any) -> World:
    """A parameter server and so many of up to four workers, at work."""
    job = manifest({"PS": 1, "Worker": workers}, policy=policy, **spec)
    job["spec"]["min-instances"], job["spec"]["max-instances"] = 1, 4
    job["metadata"]["annotations"] = {CHECKPOINT_SECONDS_ANNOTATION: seconds}
    world = World(job)
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    return world


def notes(world: World, pod: str) -> dict[str, str]:
    annotations = world.pods[pod]["metadata"].get("annotations", {})
    return {
        name: annotations[name]
        for name in (CHECKPOINT_REQUEST_ANNOTATION, EVICTION_TIME_ANNOTATION)
        if name in annotations
    }


def test_a_replica_that_loses_its_place_is_told_first_and_deleted_when_its_time_is_over() -> None:
    world = elastic()
    world.admit(PS=1, Worker=2)
    step = world.settle()

    assert notes(world, "dist-worker-2") == {
        CHECKPOINT_REQUEST_ANNOTATION: "2026-11-21T10:00:00Z",
        EVICTION_TIME_ANNOTATION: "2026-11-21T10:00:30Z",
    }
    assert step.requeue_at is not None
    assert (step.requeue_at - world.now).total_seconds() == 30
    world.pass_time(29)
    world.settle()
    assert "deletionTimestamp" not in world.pods["dist-worker-2"]["metadata"]

    world.pass_time(1)
    world.settle()
    assert set(world.pods) == {"dist-ps-0", "dist-worker-0", "dist-worker-1"}


def test_who_decides_the_job_is_asked_for_a_checkpoint_once_whenever_somebody_leaves() -> None:
    world = elastic()
    world.admit(PS=1, Worker=2)
    world.settle()

    assert notes(world, "dist-worker-0") == {CHECKPOINT_REQUEST_ANNOTATION: "2026-11-21T10:00:00Z"}
    assert notes(world, "dist-worker-1") == notes(world, "dist-ps-0") == {}
    world.pass_time(10)
    assert is_idle(world.step())

    world.admit(PS=1, Worker=1)
    world.settle()
    assert notes(world, "dist-worker-0") == {CHECKPOINT_REQUEST_ANNOTATION: "2026-11-21T10:00:10Z"}


def moved(world: World, replica: Replica, node: str) -> None:
    """The scheduler gives the replica another node."""
    admission = world.status.admission
    assert admission is not None
    world.write_admission(replace(admission, nodes={**admission.nodes, replica: node}))


def ready_nodes(*others: tuple[Key, Node]) -> dict[Key, Node]:
    return {**dict([node("node-a"), node("node-b"), node("node-c")]), **dict(others)}


def test_a_replica_that_is_moved_is_told_first_too() -> None:
    world = elastic()
    world.nodes = ready_nodes()
    moved(world, Replica(WORKER, 1), "node-c")
    world.settle()
    assert notes(world, "dist-worker-1")[EVICTION_TIME_ANNOTATION] == "2026-11-21T10:00:30Z"

    world.pass_time(30)
    world.settle()

    assert notes(world, "dist-worker-1") == {}
    assert world.created["dist-worker-1"] == 2
    assert world.tarragon["state"] == "Running"


def test_a_replica_that_is_moved_off_a_lost_node_goes_at_once() -> None:
    """Nobody would read the notice."""
    world = elastic()
    world.nodes = ready_nodes(node("node-b", ready="Unknown"))
    moved(world, Replica(WORKER, 1), "node-c")
    world.settle()

    assert notes(world, "dist-worker-1") == {}
    assert world.created["dist-worker-1"] == 2


def test_without_the_annotation_nothing_is_noted_and_the_pod_goes_at_once() -> None:
    world = elastic(seconds="0")
    world.admit(PS=1, Worker=2)
    world.settle()

    assert "dist-worker-2" not in world.pods
    assert notes(world, "dist-worker-0") == {}


def test_a_replica_that_has_not_begun_has_nothing_to_save() -> None:
    world = elastic(2)
    world.admit(PS=1, Worker=3)
    world.settle()
    assert world.pods["dist-worker-2"]["status"]["phase"] == "Pending"
    world.admit(PS=1, Worker=2)
    world.settle()

    assert "dist-worker-2" not in world.pods


@pytest.mark.parametrize("code", [0, 1, 143])
@pytest.mark.parametrize("success", ["", "AllWorkers"])
def test_however_a_leaving_replica_ends_the_job_takes_no_notice(code: int, success: str) -> None:
    world = elastic(successPolicy=success, runPolicy={"backoffLimit": 1})
    world.admit(PS=1, Worker=2)
    world.settle()
    world.pass_time(5)
    world.exit("dist-worker-2", code)
    world.settle()

    assert world.tarragon["state"] == "Running"
    assert "dist-worker-2" not in world.pods
    assert world.status.succeeded_replicas == frozenset()
    assert sum(record.total for record in world.status.restarts.values()) == 0


def test_its_name_is_used_again_only_after_it_is_gone() -> None:
    world = elastic()
    world.admit(PS=1, Worker=2)
    world.step()
    world.pass_time(30)
    world.step()
    world.admit(PS=1, Worker=3)
    world.step()
    assert world.created["dist-worker-2"] == 1

    world.bury()
    world.settle()
    assert world.created["dist-worker-2"] == 2
    assert notes(world, "dist-worker-2") == {}


def test_who_gets_the_place_back_in_time_stays_and_is_told_so() -> None:
    world = elastic()
    world.admit(PS=1, Worker=2)
    world.settle()
    world.pass_time(10)
    world.admit(PS=1, Worker=3)
    world.settle()

    assert notes(world, "dist-worker-2") == {}
    world.pass_time(60)
    world.settle()
    assert world.created["dist-worker-2"] == 1


def test_who_has_left_before_the_place_came_back_is_made_anew_and_nothing_is_counted() -> None:
    world = elastic(policy="OnFailure", runPolicy={"backoffLimit": 1})
    world.admit(PS=1, Worker=2)
    world.settle()
    world.pass_time(10)
    world.exit("dist-worker-2", 0)
    world.admit(PS=1, Worker=3)
    world.settle()

    assert world.created["dist-worker-2"] == 2
    assert world.tarragon["restarts"]["total"] == 0
    assert world.tarragon["state"] == "Running"
    assert "TFJobRestarting" not in {event.reason for event in world.events}


def test_a_job_that_loses_all_its_places_may_save_before_it_queues_again() -> None:
    world = elastic()
    world.withdraw()
    world.settle()

    assert all(EVICTION_TIME_ANNOTATION in notes(world, pod) for pod in world.pods)
    world.exit("dist-worker-0", 0)
    world.settle()
    assert world.tarragon["state"] == "Waiting"
    world.pass_time(30)
    world.settle()
    assert world.pods == {}
    assert world.tarragon["restarts"]["total"] == 0


def test_an_operator_that_dies_between_any_two_writes_tells_nobody_twice_and_keeps_its_promise() -> None:
    for writes in range(6):
        world = elastic()
        world.admit(PS=1, Worker=1)
        world.step(writes)
        world.pass_time(3)
        world.settle()
        noted = {pod: notes(world, pod) for pod in ("dist-worker-1", "dist-worker-2")}
        world.pass_time(12)
        world.settle()
        assert noted == {pod: notes(world, pod) for pod in noted}
        world.pass_time(18)
        world.settle()

        assert set(world.pods) == {"dist-ps-0", "dist-worker-0"}
        assert Counter(world.created.values()) == {1: 4}


def test_a_worker_in_the_middle_may_be_taken_away_and_comes_back_under_its_own_name() -> None:
    world = elastic(seconds="0")
    before = world.status.admission
    assert before is not None
    nodes = {replica: node for replica, node in before.nodes.items() if replica != Replica(WORKER, 1)}
    world.write_admission(
        Admission(queued_at=before.queued_at, admitted_at=before.admitted_at, size={PS: 1, WORKER: 2}, nodes=nodes)
    )
    world.settle()
    assert set(world.pods) == {"dist-ps-0", "dist-worker-0", "dist-worker-2"}
    assert world.tarragon["ready"] == "3/3"

    world.admit()
    world.settle()
    assert world.created == {"dist-ps-0": 1, "dist-worker-0": 1, "dist-worker-1": 2, "dist-worker-2": 1}


def test_a_note_that_cannot_be_read_is_written_anew() -> None:
    world = elastic()
    world.admit(PS=1, Worker=2)
    world.pods["dist-worker-2"]["metadata"]["annotations"] = {EVICTION_TIME_ANNOTATION: "soon"}
    world.settle()

    assert notes(world, "dist-worker-2")[EVICTION_TIME_ANNOTATION] == "2026-11-21T10:00:30Z"


def test_a_note_that_keeps_a_place_for_longer_than_anybody_is_promised_is_written_anew() -> None:
    world = elastic()
    world.admit(PS=1, Worker=2)
    world.pods["dist-worker-2"]["metadata"]["annotations"] = {EVICTION_TIME_ANNOTATION: "2099-01-01T00:00:00Z"}
    world.settle()

    assert notes(world, "dist-worker-2")[EVICTION_TIME_ANNOTATION] == "2026-11-21T10:00:30Z"


def test_who_decides_is_not_asked_again_when_it_goes_before_those_that_were_told_after_it() -> None:
    world = elastic()
    world.withdraw()
    world.pods["dist-worker-0"]["metadata"]["annotations"] = {
        CHECKPOINT_REQUEST_ANNOTATION: "2026-11-21T09:59:40Z",
        EVICTION_TIME_ANNOTATION: "2026-11-21T10:00:10Z",
    }
    world.settle()
    world.pass_time(10)
    world.settle()

    assert set(world.pods) == {"dist-ps-0", "dist-worker-1", "dist-worker-2"}


def test_a_template_that_was_copied_from_a_leaving_pod_makes_no_pod_that_leaves() -> None:
    job = manifest({"Worker": 1})
    template = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {
        "annotations": {
            EVICTION_TIME_ANNOTATION: "2020-01-01T00:00:00Z",
            CHECKPOINT_REQUEST_ANNOTATION: "2020-01-01T00:00:00Z",
        }
    }
    world = World(job)
    world.settle()
    world.admit()
    world.settle()

    assert notes(world, "dist-worker-0") == {}


def test_who_is_leaving_goes_with_the_end_of_the_job_whatever_else_stays() -> None:
    world = elastic(runPolicy={"cleanPodPolicy": "None"})
    world.admit(PS=1, Worker=2)
    world.settle()
    world.exit("dist-worker-0", 0)
    world.settle()

    assert set(world.pods) == {"dist-ps-0", "dist-worker-0", "dist-worker-1"}
