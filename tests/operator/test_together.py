"""Gangs that are made anew only together, by an operator at work on the embedded API, and one that dies meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from tarragon.kube.meta import Key
from tarragon.plan.objects.gang_round import ROUND_ANNOTATION
from tests.operator.stage import TFJOBS, Stage, group, job

NAMES = ("a-worker-0", "a-worker-1", "a-worker-2")


async def submit(stage: Stage, workers: int, **annotations: str) -> None:
    body = job("a", Worker=group(workers, policy="OnFailure", cpu="1"))
    body["metadata"]["annotations"] = {f"tarragon.dev/{name}": value for name, value in annotations.items()}
    await stage.world.client.create(TFJOBS, body)


async def runs(stage: Stage, *names: str) -> None:
    await stage.until_pods(*names)
    await stage.all_run(*names)
    await stage.until_state("a", "Running")


def rounds(stage: Stage) -> set[str]:
    return {pod["metadata"].get("annotations", {}).get(ROUND_ANNOTATION, "0") for pod in stage.pods().values()}


def are_ending(stage: Stage) -> bool:
    return bool(stage.pods()) and all("deletionTimestamp" in pod["metadata"] for pod in stage.pods().values())


async def test_a_gang_is_made_anew_once_all_of_the_old_one_are_gone(stage: Stage) -> None:
    await stage.node("n")
    stage.start_operator()
    await submit(stage, 3, restart="gang")
    await runs(stage, *NAMES)

    await stage.plays("a-worker-1", "Failed", 1)
    await stage.world.until(lambda: are_ending(stage))
    await stage.end_pods()
    await stage.world.until(lambda: rounds(stage) == {"1"} and set(stage.pods()) == set(NAMES))
    await stage.all_run(*NAMES)
    await stage.until_state("a", "Running")

    assert Counter(stage.made()) == Counter(dict.fromkeys(NAMES, 2))
    assert stage.job("a")["status"]["tarragon"]["restarts"]["total"] == 1


@pytest.mark.parametrize("seed", range(4))
async def test_an_operator_that_dies_at_any_moment_leaves_no_half_of_a_gang(stage: Stage, seed: int) -> None:
    moments = random.Random(seed)
    await stage.node("n")
    operator = stage.operator()
    await submit(stage, 3, restart="gang")
    await runs(stage, *NAMES)
    await stage.kill(operator)
    await stage.plays("a-worker-1", "Failed", 1)
    for _ in range(25):
        operator = stage.operator()
        for _ in range(moments.randrange(1, 300)):
            await asyncio.wait([operator], timeout=0)
        await stage.kill(operator)
        assert len(rounds(stage)) <= 1
        await stage.end_pods()
    stage.start_operator()
    await stage.world.until(lambda: rounds(stage) == {"1"} and set(stage.pods()) == set(NAMES))

    assert Counter(stage.made()) == Counter(dict.fromkeys(NAMES, 2))
    assert stage.job("a")["status"]["tarragon"]["restarts"]["total"] == 1


async def wish(stage: Stage, workers: int) -> None:
    patch = {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": workers}}}}
    await stage.world.client.patch(TFJOBS, Key("default", "a"), patch)


def not_grown(stage: Stage) -> str:
    conditions = stage.job("a")["status"]["conditions"]
    return next((str(one["reason"]) for one in conditions if one["type"] == "NotGrown"), "")


async def test_a_job_grows_by_a_restart_when_there_is_room_for_all_that_it_wishes(stage: Stage) -> None:
    await stage.node("n0", cpu="2")
    stage.start_operator()
    await submit(stage, 2, resize="restart")
    await runs(stage, *NAMES[:2])
    await wish(stage, 4)
    await stage.world.until(lambda: not_grown(stage) == "WaitsForRoom")

    await stage.node("n1", cpu="1")  # Room for one more is not what was wished for.
    await wish(stage, 3)
    await stage.world.until(lambda: are_ending(stage))
    await stage.end_pods()
    await runs(stage, *NAMES)

    assert rounds(stage) == {"1"}
    assert stage.admission("a")["size"] == {"Worker": 3}
    assert [stage.pods()[name]["spec"]["nodeName"] for name in NAMES] == ["n0", "n0", "n1"]
    assert stage.job("a")["status"]["tarragon"]["restarts"]["total"] == 0


async def test_a_job_without_leave_to_restart_keeps_its_size_and_says_so(stage: Stage) -> None:
    await stage.node("n0")
    stage.start_operator()
    await submit(stage, 2)
    await runs(stage, *NAMES[:2])
    await wish(stage, 3)
    await stage.world.until(lambda: bool(stage.events("NeedsRestart")))

    assert not_grown(stage) == "NeedsRestart"
    assert set(stage.pods()) == set(NAMES[:2])
    (told,) = stage.events("NeedsRestart")
    assert "tarragon.dev/resize: restart" in told


async def test_two_replicas_on_the_host_s_network_get_nodes_of_their_own_or_wait(stage: Stage) -> None:
    """Kubernetes' scheduler knows this, and who places pods directly has to know it, too: trainer#1797."""
    await stage.node("n0")
    stage.start_operator()
    body = job("a", Worker=group(2))
    body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["hostNetwork"] = True
    await stage.world.client.create(TFJOBS, body)
    await stage.until_state("a", "Waiting")
    await stage.world.until(lambda: "wait" in stage.admission("a"))
    assert "host-port:2222" in stage.admission("a")["wait"]["message"]

    await stage.node("n1")
    await stage.until_pods(*NAMES[:2])
    assert {pod["spec"]["nodeName"] for pod in stage.pods().values()} == {"n0", "n1"}

    other = job("b", Worker=group(1))
    container = other["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["ports"] = [{"containerPort": 80, "hostPort": 2222}]
    await stage.world.client.create(TFJOBS, other)
    await stage.until_state("b", "Waiting")
    await stage.plays("a-worker-0", "Succeeded", 0)
    await stage.world.until(lambda: "b-worker-0" in stage.pods())
