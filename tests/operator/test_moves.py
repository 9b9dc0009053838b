"""Nodes come and go: whose pods stay, and who gets another node, without a restart on record."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import random
from typing import Any

import pytest

from tarragon.client.errors import ApiError
from tarragon.client.port import DeleteOptions
from tarragon.kube.core import NODES, PODS
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.plan.objects.settings import OperatorSettings
from tests.operator.stage import TFJOBS, Stage, group, job

Json = dict[str, Any]
PAIR = ("a-worker-0", "a-worker-1")


def operator(stage: Stage, **settings: float) -> asyncio.Task[None]:
    options = OperatorOptions(settings=OperatorSettings(**settings), seed=1)  # type: ignore[arg-type]
    return asyncio.create_task(Operator(stage.world.client, stage.world.clock, options).run())


async def runs_on_two_nodes(stage: Stage, **spec: Any) -> None:
    """Job `a` has a worker on each of the nodes `x` and `y`."""
    await stage.node("x", cpu="1")
    await stage.node("y", cpu="1")
    await stage.submit("a", Worker=group(2, cpu="1"), **spec)
    await stage.until_pods(*PAIR)
    await stage.all_run(*PAIR)
    await stage.until_state("a", "Running")


def node_of(stage: Stage, pod: str) -> str:
    return str(stage.pods()[pod]["spec"]["nodeName"]) if pod in stage.pods() else ""


def pod_on(stage: Stage, node: str) -> str:
    return next(name for name in stage.pods() if node_of(stage, name) == node)


async def change(stage: Stage, node: str, **spec: Any) -> None:
    await stage.world.client.patch(NODES, Key("", node), {"spec": spec})


async def delete(stage: Stage, pod: str) -> None:
    """As an eviction does, with a kubelet that ends it at once."""
    await stage.world.client.delete(PODS, Key("default", pod), DeleteOptions(grace_period_seconds=0))


def restarts(stage: Stage, name: str = "a") -> Json:
    found: Json = stage.job(name)["status"]["tarragon"]["restarts"]
    return found


async def test_pods_stay_on_a_node_that_is_cordoned(stage: Stage) -> None:
    stage.start_operator()
    await runs_on_two_nodes(stage)
    await stage.node("z", cpu="8")
    before = {name: pod["metadata"]["uid"] for name, pod in stage.pods().items()}
    await change(stage, "x", unschedulable=True)
    await stage.submit("later", Worker=group(1, cpu="1"))
    await stage.world.until(lambda: node_of(stage, "later-worker-0") == "z")

    assert {name: stage.pods()[name]["metadata"]["uid"] for name in before} == before


async def test_pods_of_an_elastic_gang_stay_on_a_node_that_is_cordoned(stage: Stage) -> None:
    stage.start_operator()
    elastic: Json = {"min-instances": 1, "max-instances": 2}
    await runs_on_two_nodes(stage, **elastic)
    await stage.node("z", cpu="1")
    await stage.submit("other", Worker=group(1, cpu="1"))
    await stage.until_pods(*PAIR, "other-worker-0")
    await change(stage, "y", unschedulable=True)
    await stage.submit("later", Worker=group(1, cpu="1"))
    await stage.world.until(lambda: "wait" in stage.admission("later"))

    assert stage.admission("a")["size"] == {"Worker": 2}


async def test_who_is_drained_goes_elsewhere_at_once_and_no_restart_is_counted(stage: Stage) -> None:
    stage.start_operator()
    await runs_on_two_nodes(stage)
    await stage.node("z", cpu="8")
    moved = pod_on(stage, "x")
    await change(stage, "x", unschedulable=True)
    await delete(stage, moved)
    await stage.world.until(lambda: node_of(stage, moved) == "z")
    await stage.plays(moved, "Running")
    await stage.until_state("a", "Running")

    assert stage.made().count(moved) == 2
    assert restarts(stage) == {"total": 0}


@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule"])
async def test_who_loses_its_pod_on_a_node_with_a_taint_goes_elsewhere(stage: Stage, effect: str) -> None:
    stage.start_operator()
    await runs_on_two_nodes(stage)
    await stage.node("z", cpu="8")
    moved = pod_on(stage, "y")
    await change(stage, "y", taints=[{"key": "for", "value": "others", "effect": effect}])
    await delete(stage, moved)
    await stage.world.until(lambda: node_of(stage, moved) == "z")

    assert stage.made().count(moved) == 2


async def test_a_drained_gang_that_finds_no_other_node_waits_and_says_so_then_lets_go_of_all(stage: Stage) -> None:
    keeper = operator(stage, start_timeout=0.5)
    await runs_on_two_nodes(stage)
    moved, stays = pod_on(stage, "x"), pod_on(stage, "y")
    await change(stage, "x", unschedulable=True)
    await delete(stage, moved)
    await stage.world.until(lambda: "wait" in stage.admission("a"))
    told = f"{moved.removeprefix('a-')} needs another node: node x is cordoned (kubectl uncordon x)"
    assert stage.admission("a")["wait"] == {"code": "NodeAway", "message": told}
    await stage.world.until(lambda: told in stage.events("NodeAway"))

    await stage.world.until(lambda: stays not in stage.pods() or "deletionTimestamp" in stage.pods()[stays]["metadata"])
    await stage.end_pods()
    await stage.submit("b", Worker=group(1, cpu="1"))
    await stage.world.until(lambda: node_of(stage, "b-worker-0") == "y")
    await change(stage, "x", unschedulable=None)
    await stage.node("z", cpu="1")
    await stage.world.until(lambda: set(PAIR) <= set(stage.pods()))
    await stage.kill(keeper)


async def test_a_node_that_comes_back_in_time_gets_its_pod_again(stage: Stage) -> None:
    keeper = operator(stage)
    await runs_on_two_nodes(stage)
    moved = pod_on(stage, "x")
    await change(stage, "x", unschedulable=True)
    await delete(stage, moved)
    await stage.world.until(lambda: bool(stage.events("NodeAway")))
    await change(stage, "x", unschedulable=None)
    await stage.world.until(lambda: node_of(stage, moved) == "x")
    await stage.kill(keeper)


@pytest.mark.parametrize("reason", ["OutOfcpu", "UnexpectedAdmissionError", "NodeAffinity", "TaintToleration"])
async def test_what_a_kubelet_refuses_goes_to_another_node(stage: Stage, reason: str) -> None:
    """Our sums say that it fits: somebody has what they do not show, or a device is broken."""
    await stage.node("full", cpu="1")
    stage.start_operator()
    await stage.submit("a", Worker=group(1, cpu="1"), runPolicy={"backoffLimit": 0})
    await stage.until_pods("a-worker-0")
    await stage.node("roomy", cpu="1")
    await refuse(stage, "a-worker-0", reason)
    await stage.world.until(lambda: node_of(stage, "a-worker-0") == "roomy")
    await stage.plays("a-worker-0", "Running")
    await stage.until_state("a", "Running")

    assert restarts(stage)["total"] == 0
    assert "Restarting" not in {each["type"] for each in stage.job("a")["status"]["conditions"]}
    assert stage.made() == ["a-worker-0", "a-worker-0"]


async def refuse(stage: Stage, pod: str, reason: str) -> None:
    status = {"phase": "Failed", "reason": reason, "message": "no"}
    await stage.world.client.patch(PODS, Key("default", pod), {"status": status}, subresource="status")


async def test_a_node_that_is_not_ready_for_long_is_given_up_though_nobody_evicts(stage: Stage) -> None:
    stage.start_operator()
    await runs_on_two_nodes(stage)
    moved = pod_on(stage, "x")
    await stage.node("z", cpu="8")
    since = stage.world.clock.now() - dt.timedelta(hours=1)
    lost = {"type": "Ready", "status": "Unknown", "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ")}
    await stage.world.client.patch(NODES, Key("", "x"), {"status": {"conditions": [lost]}}, subresource="status")
    await stage.world.until(lambda: "deletionTimestamp" in stage.pods()[moved]["metadata"])
    await stage.end_pods()
    await stage.world.until(lambda: node_of(stage, moved) == "z")

    assert restarts(stage) == {"total": 0}


async def test_pods_of_a_node_that_is_not_ready_for_a_moment_stay(stage: Stage) -> None:
    stage.start_operator()
    await runs_on_two_nodes(stage)
    before = {name: pod["metadata"]["uid"] for name, pod in stage.pods().items()}
    await stage.node("z", cpu="8")
    now = stage.world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    lost = {"type": "Ready", "status": "Unknown", "lastTransitionTime": now}
    await stage.world.client.patch(NODES, Key("", "x"), {"status": {"conditions": [lost]}}, subresource="status")
    await stage.submit("later", Worker=group(1, cpu="1"))
    await stage.until_pods(*PAIR, "later-worker-0")

    assert {name: stage.pods()[name]["metadata"]["uid"] for name in before} == before


async def test_a_deleted_node_takes_its_pod_along_and_the_replica_goes_elsewhere(stage: Stage) -> None:
    stage.start_operator()
    await runs_on_two_nodes(stage)
    await stage.node("z", cpu="8")
    moved = pod_on(stage, "y")
    await stage.world.delete(NODES, "y", namespace="")
    await stage.world.until(lambda: "deletionTimestamp" in stage.pods()[moved]["metadata"])
    await stage.end_pods()
    await stage.world.until(lambda: node_of(stage, moved) == "z")

    assert restarts(stage) == {"total": 0}


async def test_a_gang_that_restarts_together_is_made_anew_around_the_drained_node(stage: Stage) -> None:
    stage.start_operator()
    await stage.node("x", cpu="1")
    await stage.node("y", cpu="1")
    body = job("a", Worker=group(2, policy="OnFailure", cpu="1"))
    body["metadata"]["annotations"] = {"tarragon.dev/restart": "gang"}
    await stage.world.client.create(TFJOBS, body)
    await stage.until_pods(*PAIR)
    await stage.all_run(*PAIR)
    await stage.until_state("a", "Running")
    moved, other = pod_on(stage, "x"), pod_on(stage, "y")
    before = stage.pods()[other]["metadata"]["uid"]
    await stage.node("z", cpu="8")
    await change(stage, "x", unschedulable=True)
    await delete(stage, moved)
    await stage.world.until(lambda: "deletionTimestamp" in stage.pods()[other]["metadata"])
    await stage.end_pods()
    await stage.world.until(lambda: node_of(stage, moved) == "z" and node_of(stage, other) == "y")

    assert stage.pods()[other]["metadata"]["uid"] != before
    assert sorted(stage.made()) == sorted([*PAIR, *PAIR])


async def test_an_elastic_gang_goes_on_without_the_last_one_whose_node_is_taken_out_of_use(stage: Stage) -> None:
    keeper = operator(stage, start_timeout=0.3)
    elastic: Json = {"min-instances": 1, "max-instances": 2}
    await runs_on_two_nodes(stage, **elastic)
    first = stage.pods()["a-worker-0"]["metadata"]["uid"]
    await change(stage, node_of(stage, "a-worker-1"), unschedulable=True)
    await delete(stage, "a-worker-1")
    await stage.world.until(lambda: stage.admission("a").get("size") == {"Worker": 1})

    assert stage.pods()["a-worker-0"]["metadata"]["uid"] == first
    assert stage.admission("a")["wait"]["code"] == "NodeAway"
    await stage.kill(keeper)


@pytest.mark.parametrize("seed", range(2))
async def test_whatever_becomes_of_nodes_and_operators_the_gang_ends_up_whole_and_without_a_restart_of_its_own(
    stage: Stage, seed: int
) -> None:
    dice = random.Random(seed)
    names = ("n0", "n1", "n2", "n3")
    for name in names:
        await stage.node(name, cpu="1")
    await stage.submit("a", Worker=group(2, cpu="1"), runPolicy={"backoffLimit": 0})
    for _ in range(12):
        keeper = operator(stage)
        await asyncio.wait([keeper], timeout=dice.random() / 4)
        await mishap(stage, dice, dice.choice(names))
        await asyncio.wait([keeper], timeout=dice.random() / 4)
        await stage.kill(keeper)
        await stage.end_pods()
    for name in names:
        await change(stage, name, unschedulable=None)
    keeper = operator(stage)
    while not (stage.state("a") == "Running" and is_whole(stage)):
        await stage.end_pods()
        for name in [name for name, pod in stage.pods().items() if pod["status"]["phase"] == "Pending"]:
            with contextlib.suppress(ApiError):
                await stage.plays(name, "Running")
        await asyncio.wait([keeper], timeout=0.01)

    records = restarts(stage).get("replicas", [])
    assert all(record.get("count") == record.get("disruptions") for record in records)
    assert {node_of(stage, pod) for pod in PAIR} <= set(names)
    await stage.kill(keeper)


def is_whole(stage: Stage) -> bool:
    pods = stage.pods()
    return set(pods) == set(PAIR) and all(
        pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"] for pod in pods.values()
    )


async def mishap(stage: Stage, dice: random.Random, node: str) -> None:
    """One thing that nodes do to those who train on them."""
    here = [name for name in stage.pods() if node_of(stage, name) == node]
    match dice.randrange(4):
        case 0:
            await change(stage, node, unschedulable=True)
        case 1:
            await change(stage, node, unschedulable=None)
        case 2:
            for pod in here:
                await delete(stage, pod)
        case _:
            for pod in here:
                await refuse(stage, pod, "OutOfcpu")
