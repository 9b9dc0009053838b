"""The golden vectors about ends: in which generation a replica is tried again, and when a job is over."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plan.world import World, manifest

FLAT_V1 = "kubeflow.org/v1-flat"
UP_TO_1_4 = ("kubeflow.org/v1alpha2", "kubeflow.org/v1beta1", "kubeflow.org/v1beta2", FLAT_V1)
SINCE_1_5 = ("kubeflow.org/v1",)
GENERATIONS = (*UP_TO_1_4, *SINCE_1_5)


def running(generation: str, replicas: dict[str, int], *, policy: str = "Never", **spec: Any) -> World:
    """A job of that generation, all of its pods at work."""
    shape: dict[str, Any] = {"cleanPodPolicy": "Running"} if generation == FLAT_V1 else {}
    version = generation.removesuffix("-flat")
    world = World({**manifest(replicas, policy=policy, **shape, **spec), "apiVersion": version})
    world.settle()
    assert world.tarragon["generation"] == generation
    world.admit()
    world.settle()
    world.run()
    world.settle()
    return world


def state_after(world: World) -> str:
    world.settle()
    return str(world.tarragon["state"])


@pytest.mark.parametrize("generation", GENERATIONS)
def test_g9_exit_code_138_is_a_users_wish_to_be_tried_again(generation: str) -> None:
    world = running(generation, {"Worker": 2}, policy="ExitCode")
    world.exit("dist-worker-1", 138)

    assert state_after(world) != "Failed"
    assert world.created["dist-worker-1"] == 2


@pytest.mark.parametrize("generation", GENERATIONS)
def test_g10_exit_code_139_is_tried_again_since_training_operator_1_5_only(generation: str) -> None:
    world = running(generation, {"Worker": 2}, policy="ExitCode")
    world.exit("dist-worker-1", 139)

    assert (state_after(world) == "Failed") == (generation in UP_TO_1_4)
    assert world.created["dist-worker-1"] == (1 if generation in UP_TO_1_4 else 2)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_g11_exit_code_1_is_for_good(generation: str) -> None:
    world = running(generation, {"Worker": 2}, policy="ExitCode")
    world.exit("dist-worker-1", 1)

    assert state_after(world) == "Failed"


@pytest.mark.parametrize("generation", GENERATIONS)
def test_g12_an_evicted_pod_is_made_anew_in_every_generation(generation: str) -> None:
    """Up to training-operator 1.5 it failed the job: what the program did not do is none of its failures."""
    world = running(generation, {"Worker": 2}, policy="OnFailure")
    world.disrupt("dist-worker-1", reason="Evicted")

    assert state_after(world) != "Failed"
    assert world.created["dist-worker-1"] == 2


@pytest.mark.parametrize("generation", GENERATIONS)
def test_g13_worker_0_alone_decides_where_nobody_says_otherwise(generation: str) -> None:
    world = running(generation, {"Worker": 2})
    world.exit("dist-worker-0", 0)

    assert state_after(world) == "Succeeded"


def test_g13_under_all_workers_the_job_runs_on() -> None:
    world = running("kubeflow.org/v1", {"Worker": 2}, successPolicy="AllWorkers")
    world.exit("dist-worker-0", 0)

    assert state_after(world) == "Running"
    world.exit("dist-worker-1", 0)
    assert state_after(world) == "Succeeded"


@pytest.mark.parametrize("generation", GENERATIONS)
def test_g14_a_worker_that_fails_for_good_fails_the_job_while_its_chief_runs(generation: str) -> None:
    world = running(generation, {"Chief": 1, "Worker": 2}, policy="ExitCode")
    world.exit("dist-worker-1", 1)

    assert state_after(world) == "Failed"
