"""A running job gets another size: people are told once, and what the replicas know of each other stays true."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.annotations import RESIZE_ANNOTATION, RESTART_ANNOTATION, is_elastic_by_restart
from tarragon.job.model import Replica
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.status.resizes import renumber_from_zero
from tests.plan.world import World, manifest


def elastic(workers: int = 3, *, servers: int = 1, annotations: dict[str, str] | None = None, **spec: Any) -> World:
    job = manifest({"PS": servers, "Worker": workers} if servers else {"Worker": workers}, **spec)
    job["spec"] |= {"min-instances": 1, "max-instances": 4}
    job["metadata"]["annotations"] = annotations or {}
    world = World(job)
    world.settle()
    world.admit()
    run(world)
    return world


def run(world: World) -> None:
    world.settle()
    world.run()
    world.settle()


def resize(world: World, reason: str, **size: int) -> None:
    world.admit(**size)
    admission = world.status.admission
    assert admission is not None
    world.write_admission(replace(admission, resized_at=world.now, resize_reason=reason))
    run(world)


def resize_events(world: World) -> list[tuple[str, str]]:
    return [(each.reason, each.message) for each in world.events if each.reason in {"ScaledUp", "ScaledDown"}]


def told_workers(world: World, pod: str) -> int:
    env = world.pods[pod]["spec"]["containers"][0]["env"]
    config = next(each["value"] for each in env if each["name"] == "TF_CONFIG")
    return len(json.loads(config)["cluster"]["worker"])


def test_each_change_of_size_is_told_once_with_its_reason() -> None:
    world = elastic()
    assert resize_events(world) == []
    resize(world, "made room for default/big", PS=1, Worker=2)
    resize(world, "made room for default/bigger", PS=1, Worker=1)
    world.pass_time(600)
    world.settle()
    resize(world, "nodes are idle", PS=1, Worker=4)

    assert resize_events(world) == [
        ("ScaledDown", "3 -> 2 workers: made room for default/big"),
        ("ScaledDown", "2 -> 1 workers: made room for default/bigger"),
        ("ScaledUp", "1 -> 4 workers: nodes are idle"),
    ]
    assert world.conditions()["Resized"] == "ScaledUp"
    assert world.tarragon["size"] == {"PS": 1, "Worker": 4}


def test_a_size_that_its_user_asked_for_is_told_as_such() -> None:
    world = elastic()
    world.edit({"tfReplicaSpecs": {"Worker": {"replicas": 2}}})
    world.admit()
    run(world)

    assert resize_events(world) == [("ScaledDown", "3 -> 2 workers: as requested")]


def test_an_operator_that_comes_after_a_crash_tells_nothing_again() -> None:
    world = elastic()
    world.admit(PS=1, Worker=2)
    world.step(writes=1)
    world.settle()
    assert resize_events(world) == []  # They went with the operator that had the status written.
    condition = world.status.condition("Resized")
    assert condition is not None
    assert condition.message == "3 -> 2 workers: as requested"


def test_a_job_that_gives_way_says_for_whom_and_begins_anew_without_a_word_of_sizes() -> None:
    world = elastic()
    admission = world.status.admission
    assert admission is not None
    gone = replace(
        admission, admitted_at=None, size={}, nodes={}, resized_at=world.now, resize_reason="made room for default/vip"
    )
    world.write_admission(gone)
    world.settle()

    assert world.conditions()["Evicted"] == "Preempted"
    (event,) = [each for each in world.events if each.reason == "Preempted"]
    assert (event.type, event.message) == ("Warning", "made room for default/vip")
    assert world.tarragon["state"] == "Waiting"
    assert world.tarragon["restarts"]["total"] == 0
    assert world.pods == {}

    world.write_admission(replace(admission, admitted_at=world.now))
    run(world)
    assert world.tarragon["state"] == "Running"
    assert "Evicted" not in world.conditions()
    assert resize_events(world) == []


@pytest.mark.parametrize("annotation", [{RESIZE_ANNOTATION: "restart"}, {RESTART_ANNOTATION: "gang"}])
def test_workers_that_march_in_step_are_started_again_at_each_size_and_know_it(annotation: dict[str, str]) -> None:
    world = elastic(servers=0, annotations=annotation, policy="OnFailure")
    assert told_workers(world, "dist-worker-0") == 3

    resize(world, "made room for default/big", Worker=2)
    assert {name: told_workers(world, name) for name in world.pods} == {"dist-worker-0": 2, "dist-worker-1": 2}
    resize(world, "nodes are idle", Worker=4)
    assert {told_workers(world, name) for name in world.pods} == {4}
    assert world.created == {"dist-worker-0": 3, "dist-worker-1": 3, "dist-worker-2": 2, "dist-worker-3": 1}
    assert world.tarragon["restarts"]["total"] == 0


def test_an_elastic_job_is_told_of_all_that_may_ever_come_and_finds_their_names() -> None:
    world = elastic(2)
    assert told_workers(world, "dist-worker-0") == told_workers(world, "dist-ps-0") == 4
    assert {f"dist-worker-{index}" for index in range(4)} <= set(world.services)

    resize(world, "nodes are idle", PS=1, Worker=4)
    assert told_workers(world, "dist-worker-3") == 4
    assert world.created["dist-ps-0"] == 1


def test_before_all_of_a_smaller_size_are_made_those_of_the_larger_one_may_save_together() -> None:
    world = elastic(servers=0, annotations={RESIZE_ANNOTATION: "restart", "tarragon.dev/checkpoint-seconds": "30"})
    world.admit(Worker=2)
    world.settle()
    assert len(world.pods) == 3
    assert all("tarragon.dev/leaving" in pod["metadata"]["annotations"] for pod in world.pods.values())
    for pod in list(world.pods):
        world.exit(pod, 0)
    run(world)

    assert world.tarragon["state"] == "Running"
    assert {name: told_workers(world, name) for name in world.pods} == {"dist-worker-0": 2, "dist-worker-1": 2}


def test_where_all_workers_decide_one_that_lost_its_place_is_waited_for() -> None:
    """Counting those that are there would call a job done because it was made smaller."""
    world = elastic(successPolicy="AllWorkers")
    resize(world, "made room for default/big", PS=1, Worker=2)
    world.exit("dist-worker-0", 0)
    world.exit("dist-worker-1", 0)
    world.settle()
    assert world.tarragon["state"] == "Running"

    resize(world, "nodes are idle", PS=1, Worker=3)
    assert world.created["dist-worker-2"] == 2
    world.exit("dist-worker-2", 0)
    world.settle()
    assert world.tarragon["state"] == "Succeeded"


def test_only_who_marches_in_step_is_counted_anew_when_one_in_the_middle_goes() -> None:
    nodes = {Replica(WORKER, 0): "a", Replica(WORKER, 2): "c", Replica(PS, 0): "b"}
    job = decode_and_validate(World(manifest({"Worker": 1})).framework, elastic().job).job
    assert job is not None
    assert renumber_from_zero(job, nodes) == nodes

    bound = replace(job, annotations={RESIZE_ANNOTATION: "restart"})
    assert is_elastic_by_restart(bound)
    assert renumber_from_zero(bound, nodes) == {Replica(WORKER, 0): "a", Replica(WORKER, 1): "c", Replica(PS, 0): "b"}
