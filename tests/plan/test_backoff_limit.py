"""The backoffLimit of the generations whose job was a batch Job; that of TFJobs is in test_failures.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tarragon.frameworks.plugin import BackoffCount, Framework
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tests.plan.world import World, manifest

WORDS = "Job has reached the specified backoff limit"


def as_batch_job() -> Framework:
    dialects = (replace(dialect, backoff_count=BackoffCount.BATCH_JOB) for dialect in TENSORFLOW.dialects)
    return replace(TENSORFLOW, dialects=tuple(dialects))


def running(limit: int | None, policy: str = "OnFailure") -> World:
    run_policy = {} if limit is None else {"backoffLimit": limit}
    world = World(manifest({"Chief": 1, "Worker": 1}, policy=policy, run_policy=run_policy))
    world.framework = as_batch_job()
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    return world


def fail(world: World, name: str, code: int = 1, message: str = "") -> None:
    """The pod fails; if the job goes on, its successor runs once its backoff is over."""
    world.exit(name, code, message=message)
    due = world.settle().requeue_at
    if due is not None:
        world.now = max(world.now, due)
        world.settle()
    world.run()
    world.settle()


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_job_fails_with_the_first_failure_beyond_its_limit(limit: int) -> None:
    world = running(limit)
    for _ in range(limit):
        fail(world, "dist-chief-0")
    assert world.tarragon["state"] == "Running"

    world.exit("dist-chief-0", 1)
    world.settle()

    assert world.conditions()["Failed"] == "BackoffLimitExceeded"
    assert world.created["dist-chief-0"] == limit + 1


@pytest.mark.parametrize(("limit", "restarts"), [(0, 1), (1, 1), (2, 2)])
def test_restarts_in_place_end_a_job_when_they_reach_its_limit(limit: int, restarts: int) -> None:
    world = running(limit)
    if restarts > 1:
        world.restart_in_place("dist-chief-0", restarts - 1)
        world.settle()
        assert world.tarragon["state"] == "Running"

    world.restart_in_place("dist-chief-0", restarts)
    world.settle()

    assert world.conditions()["Failed"] == "BackoffLimitExceeded"


def test_failures_in_place_and_in_new_pods_count_together() -> None:
    world = running(2)
    world.restart_in_place("dist-chief-0", 1)
    world.settle()
    fail(world, "dist-chief-0")
    assert world.tarragon["state"] == "Running"

    fail(world, "dist-worker-0")

    assert world.conditions()["Failed"] == "BackoffLimitExceeded"


def test_disruptions_never_count() -> None:
    world = running(0)
    for _ in range(3):
        world.disrupt("dist-chief-0")
        world.settle()
        world.pass_time(60)
        world.settle()
        world.run()
        world.settle()

    assert world.tarragon["state"] == "Running"
    assert world.created["dist-chief-0"] == 4


def test_no_limit_is_no_limit() -> None:
    world = running(None)
    for _ in range(8):
        fail(world, "dist-chief-0")

    assert world.tarragon["state"] == "Running"


def test_the_message_is_that_of_a_batch_job_and_ends_with_the_last_failure() -> None:
    world = running(1)
    fail(world, "dist-chief-0", 1, "Traceback\nConnectionError: no route")
    world.exit("dist-chief-0", 1, message="Traceback\nValueError: no such data")
    world.settle()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.message == f"{WORDS}: chief-0: exit code 1: ValueError: no such data"
    assert (world.tarragon["reason"], world.tarragon["message"]) == ("BackoffLimitExceeded", failed.message)
    assert world.status.first_failure is not None


def test_the_message_names_the_replica_that_failed_most() -> None:
    world = running(1)
    fail(world, "dist-worker-0", 137)
    world.exit("dist-worker-0", 137)
    world.settle()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.message.startswith(f"{WORDS}: worker-0: exit code 137")
