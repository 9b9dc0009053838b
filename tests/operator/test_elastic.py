"""Elastic jobs lose replicas and get them back, by an operator on the embedded API, and one that dies meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from tarragon.job.annotations import CHECKPOINT_SECONDS_ANNOTATION
from tarragon.job.eviction_notice import CHECKPOINT_REQUEST_ANNOTATION, EVICTION_TIME_ANNOTATION
from tarragon.kube.core import PRIORITY_CLASSES
from tarragon.kube.meta import Key
from tests.operator.stage import TFJOBS, Stage, group, job

PODS = ("a-ps-0", "a-worker-0", "a-worker-1", "a-worker-2")


async def submit(stage: Stage, workers: int, seconds: int) -> None:
    bounds: dict[str, Any] = {"min-instances": 1, "max-instances": 3}
    body = job("a", PS=group(1, cpu="1"), Worker=group(workers, cpu="1"), **bounds)
    body["metadata"]["annotations"] = {CHECKPOINT_SECONDS_ANNOTATION: str(seconds)}
    await stage.world.client.create(TFJOBS, body)


async def wish(stage: Stage, workers: int) -> None:
    patch = {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": workers}}}}
    await stage.world.client.patch(TFJOBS, Key("default", "a"), patch)


def note(stage: Stage, pod: str, name: str = EVICTION_TIME_ANNOTATION) -> str:
    found = stage.pods().get(pod, {"metadata": {}})["metadata"].get("annotations", {})
    return str(found.get(name, ""))


def resized(stage: Stage) -> str:
    conditions = stage.job("a")["status"]["conditions"]
    return next((str(one["message"]) for one in conditions if one["type"] == "Resized"), "")


def told(stage: Stage) -> list[str]:
    return [*stage.events("ScaledDown"), *stage.events("ScaledUp")]


async def test_a_worker_is_told_goes_and_comes_back(stage: Stage) -> None:
    await stage.node("n")
    stage.start_operator()
    await submit(stage, 3, seconds=1)
    await stage.until_pods(*PODS)
    await stage.all_run(*PODS)
    await stage.until_state("a", "Running")

    await wish(stage, 2)
    await stage.world.until(
        lambda: bool(note(stage, "a-worker-2")) and bool(note(stage, "a-worker-0", CHECKPOINT_REQUEST_ANNOTATION))
    )
    assert not note(stage, "a-worker-0")
    await stage.world.until(lambda: "deletionTimestamp" in stage.pods()["a-worker-2"]["metadata"])
    await wish(stage, 3)
    await stage.world.until(lambda: stage.admission("a")["size"]["Worker"] == 3)
    await stage.end_pods()
    await stage.world.until(lambda: "a-worker-2" in stage.pods() and not note(stage, "a-worker-2"))
    await stage.world.until(lambda: len(told(stage)) == 2)

    assert told(stage)[0].startswith("3 -> 2 workers: ")
    assert told(stage)[1].startswith("2 -> 3 workers: ")
    assert Counter(stage.made()) == {**dict.fromkeys(PODS, 1), "a-worker-2": 2}
    assert stage.job("a")["status"]["tarragon"]["restarts"]["total"] == 0


@pytest.mark.parametrize("seed", range(3))
async def test_an_operator_that_dies_at_any_moment_tells_nobody_twice_and_loses_nobody(stage: Stage, seed: int) -> None:
    moments = random.Random(seed)
    await stage.node("n")
    operator = stage.operator()
    await submit(stage, 3, seconds=1)
    await stage.until_pods(*PODS)
    await stage.all_run(*PODS)
    await stage.until_state("a", "Running")
    await stage.kill(operator)

    await wish(stage, 2)
    notes = await _dying(stage, moments)
    stage.start_operator()
    await stage.world.until(lambda: "deletionTimestamp" in stage.pods()["a-worker-2"]["metadata"])
    assert len(notes | {note(stage, "a-worker-2")}) == 1
    assert resized(stage).startswith("3 -> 2 workers: ")
    await stage.end_pods()
    await stage.close()

    await wish(stage, 3)
    await _dying(stage, moments)
    stage.start_operator()
    await stage.world.until(lambda: "a-worker-2" in stage.pods() and resized(stage).startswith("2 -> 3"))
    assert Counter(stage.made()) == {**dict.fromkeys(PODS, 1), "a-worker-2": 2}
    assert len(stage.events("ScaledDown")) <= 1
    assert len(stage.events("ScaledUp")) <= 1
    assert stage.job("a")["status"]["tarragon"]["restarts"]["total"] == 0


async def _dying(stage: Stage, moments: random.Random) -> set[str]:
    """Operators that live for a moment each; what the leaving worker was told."""
    notes: set[str] = set()
    for _ in range(12):
        operator = stage.operator()
        for _ in range(moments.randrange(1, 300)):
            await asyncio.wait([operator], timeout=0)
        await stage.kill(operator)
        notes |= {note(stage, "a-worker-2")} - {""}
    return notes


async def test_a_job_that_gives_way_to_a_more_urgent_one_says_so_and_runs_again_after_it(stage: Stage) -> None:
    await stage.node("n", cpu="2")
    await stage.world.create(PRIORITY_CLASSES, "urgent", namespace="", value=1000)
    stage.start_operator()
    await stage.submit("a", Worker=group(2, cpu="1"), runPolicy={"backoffLimit": 1})
    await stage.until_pods("a-worker-0", "a-worker-1")
    await stage.all_run("a-worker-0", "a-worker-1")
    await stage.until_state("a", "Running")

    urgent = group(2, cpu="1")
    urgent["template"]["spec"]["priorityClassName"] = "urgent"
    await stage.submit("b", Worker=urgent)
    await stage.until_state("a", "Waiting")
    await stage.world.until(lambda: all("deletionTimestamp" in pod["metadata"] for pod in stage.pods().values()))
    assert "b-worker-0" not in stage.pods()
    await stage.end_pods()
    await stage.until_pods("b-worker-0", "b-worker-1")
    await stage.world.until(lambda: bool(stage.events("Preempted")))
    (preempted,) = stage.events("Preempted")
    assert "default/b" in preempted

    await stage.plays("b-worker-0", "Succeeded", 0)
    await stage.plays("b-worker-1", "Succeeded", 0)
    await stage.world.until(lambda: {"a-worker-0", "a-worker-1"} <= set(stage.pods()))
    await stage.all_run("a-worker-0", "a-worker-1")
    await stage.until_state("a", "Running")
    assert "Evicted" not in {one["type"] for one in stage.job("a")["status"]["conditions"]}
    assert stage.job("a")["status"]["tarragon"]["restarts"]["total"] == 0
    assert len(stage.events("Preempted")) == 1
