"""A gang of which a pod can't be made or bound, as its user reads about it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tarragon.job.status import Admission, AdmissionBackoff, Obstacle, WaitReason
from tarragon.kube.codec import format_time
from tarragon.kube.core import PODS
from tarragon.plan.view.actions import REFUSED, RejectedCreate
from tests.plan.world import START, World, is_idle, manifest

QUOTA = 'pods "dist-worker-1" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'


def admitted(**replicas: int) -> World:
    world = World(manifest(replicas or {"PS": 1, "Worker": 2}))
    world.settle()
    world.admit()
    world.step()
    return world


def refuse(world: World, seconds: float = 1.0) -> None:
    """The server says no to what is missing; it is to be tried again after so many seconds."""
    world.refusal = RejectedCreate(reason=REFUSED, message=QUOTA, retry_at=world.now + dt.timedelta(seconds=seconds))


def half_made() -> World:
    """Two of three pods are there when a quota says no."""
    world = admitted()
    world.step()
    world.vanish("dist-worker-1")
    refuse(world)
    return world


def sequential_pods(world: World) -> list[bool]:
    """Of each pod that is to be made: whether it is made alone."""
    return [create.is_sequential for create in world.decide().creates if create.resource == PODS]


def test_the_words_of_whoever_refuses_stand_in_the_condition_and_in_one_event() -> None:
    world = half_made()
    world.settle()
    blocked = world.status.condition("Blocked")

    assert blocked is not None
    assert (blocked.is_true, blocked.reason, blocked.message) == (True, "Refused", QUOTA)
    assert [(event.type, event.message) for event in world.events if event.reason == "Refused"] == [("Warning", QUOTA)]


def test_nothing_is_made_before_it_is_time_to_try_again() -> None:
    world = half_made()
    world.settle()
    world.run("dist-ps-0", "dist-worker-0")
    step = world.settle()

    assert "dist-worker-1" not in world.pods
    assert step.requeue_at == world.now + dt.timedelta(seconds=1)

    world.pass_time(1)
    assert [create.body["metadata"]["name"] for create in world.decide().creates] == ["dist-worker-1"]


def test_whoever_was_refused_is_made_one_by_one() -> None:
    world = World(manifest({"PS": 1, "Worker": 2}))
    world.settle()
    world.admit()
    assert sequential_pods(world) == [False] * 3

    refuse(world)
    world.settle()
    world.refusal = None
    assert sequential_pods(world) == [True] * 3


def test_the_workers_that_an_elastic_job_can_do_without_are_made_one_by_one() -> None:
    elastic: dict[str, Any] = {"min-instances": 2, "max-instances": 4}
    world = World(manifest({"PS": 1, "Worker": 4}, **elastic))
    world.settle()
    world.admit()

    assert sequential_pods(world) == [False] * 3 + [True] * 2


def test_it_is_on_record_since_when_however_often_it_is_refused() -> None:
    world = half_made()
    world.settle()
    world.pass_time(20)
    refuse(world, 30)
    world.settle()

    assert world.status.obstacle == Obstacle(since=START, reason="Refused", message=QUOTA)


def test_an_operator_that_knows_nothing_of_the_refusal_keeps_the_record_and_tries_once() -> None:
    world = half_made()
    world.settle()
    world.pass_time(20)
    world.refusal = None

    step = world.decide()
    assert step.status_patch is None
    assert [create.body["metadata"]["name"] for create in step.creates] == ["dist-worker-1"]


def test_once_all_pods_are_there_nothing_is_left_of_it() -> None:
    world = half_made()
    world.settle()
    world.pass_time(2)
    world.refusal = None
    world.settle()

    assert world.status.obstacle is None
    assert "Blocked" not in world.conditions()


def test_a_gang_that_lost_its_places_sends_its_pods_away_and_waits_with_the_words() -> None:
    world = half_made()
    world.settle()
    world.keep_waiting("Refused", QUOTA)
    world.settle()

    assert world.pods == {}
    assert (world.status.obstacle, world.status.start_time) == (None, None)
    waits = world.status.condition("Admitted")
    assert waits is not None
    assert (waits.is_true, waits.reason, waits.message) == (False, "Refused", QUOTA)
    assert is_idle(world.decide())


def test_a_gang_that_rests_says_until_when() -> None:
    world = half_made()
    world.settle()
    retry = AdmissionBackoff(attempts=1, not_before=world.now + dt.timedelta(seconds=60))
    world.write_admission(Admission(queued_at=world.now, wait=WaitReason(code="Refused", message=QUOTA), backoff=retry))
    world.settle()
    waits = world.status.condition("Admitted")

    assert waits is not None
    assert waits.message == f"{QUOTA}; next attempt at 2026-11-21T10:01:00Z"


def test_a_gang_whose_name_somebody_has_is_not_begun() -> None:
    world = World(manifest({"Worker": 2}))
    world.stranger("dist-worker-1")
    world.settle()
    world.admit()
    step = world.settle()

    assert world.own_pods() == {}
    assert world.status.obstacle is not None
    assert world.status.obstacle.reason == "NameTaken"
    assert step.requeue_at == world.now + dt.timedelta(seconds=5)


@pytest.mark.parametrize("end", ["suspended", "succeeded"])
def test_neither_a_suspended_nor_an_ended_job_is_blocked(end: str) -> None:
    world = half_made()
    world.settle()
    if end == "suspended":
        world.edit({"runPolicy": {"suspend": True}})
    else:
        world.run("dist-worker-0")
        world.exit("dist-worker-0", 0)
    world.settle()

    assert world.status.obstacle is None
    assert "Blocked" not in world.conditions()


def test_what_kube_scheduler_says_of_a_pod_it_cannot_bind_is_told() -> None:
    world = admitted(Worker=1)
    world.step()
    world.pods["dist-worker-0"]["spec"].pop("nodeName")
    unscheduled = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient cpu.",
        "lastTransitionTime": format_time(world.now),
    }
    world.pods["dist-worker-0"]["status"] = {"phase": "Pending", "conditions": [unscheduled]}
    world.settle()

    assert world.status.obstacle == Obstacle(
        since=START,
        reason="Unschedulable",
        message="pod dist-worker-0 can't be bound: 0/1 nodes are available: 1 Insufficient cpu.",
    )


def test_a_node_that_takes_a_pod_at_no_try_is_an_obstacle_until_it_does() -> None:
    world = admitted(Worker=1)
    world.step()
    world.pass_time(1)
    for _ in range(3):
        world.disrupt("dist-worker-0", "OutOfcpu", "Node didn't have enough resource: cpu")
        world.settle()
        world.pass_time(10)
        world.settle()

    assert world.status.obstacle == Obstacle(
        since=START + dt.timedelta(seconds=1), reason="NodeFull", message="node node-a rejected worker-0: OutOfcpu"
    )
    world.run()
    world.settle()
    assert world.status.obstacle is None


def test_an_obstacle_of_an_earlier_admission_does_not_count_against_the_new_places() -> None:
    world = half_made()
    world.settle()
    world.pass_time(100)
    world.admit()
    refuse(world)
    world.settle()

    assert world.status.obstacle is not None
    assert world.status.obstacle.since == world.now
