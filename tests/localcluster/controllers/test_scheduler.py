from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarragon.cluster.errors import from_status
from tarragon.kube.core import NODES, PODS, Pod
from tarragon.kube.meta import Key
from tarragon.localcluster.binding import Binder
from tarragon.localcluster.scheduler import Bind, Scheduler
from tests.localcluster.controllers.world import Json, World, pod_spec


def schedule(world: World, bind: Bind | None = None) -> None:
    world.start(Scheduler(world.client, bind or Binder(world.api).bind, world.clock, world.jitter))


async def a_node(world: World, name: str = "here", **amounts: str) -> None:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10", **amounts}
    await world.create(NODES, name)
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    await world.client.patch(NODES, Key("", name), {"status": status}, subresource="status")


async def a_pod(world: World, name: str, requests: Mapping[str, str] | None = None, **spec: Any) -> None:
    container = {"resources": {"requests": dict(requests or {})}}
    await world.create(PODS, name, spec=pod_spec(container=container, **spec))


def pod(world: World, name: str) -> Json:
    return world.objects.get(f"pods/default/{name}", {"spec": {}})


def node_of(world: World, name: str) -> str:
    return str(pod(world, name)["spec"].get("nodeName", ""))


def why_it_waits(world: World, name: str) -> str:
    conditions = pod(world, name).get("status", {}).get("conditions", [])
    return next(
        (one["message"] for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"), ""
    )


async def test_a_pod_goes_to_the_first_node_that_it_fits(world: World) -> None:
    schedule(world)
    await a_node(world, "a-small", cpu="1")
    await a_node(world, "b-large")
    await a_node(world, "c-large")
    await a_pod(world, "one", {"cpu": "2"})

    await world.until(lambda: node_of(world, "one") == "b-large")
    await world.until(lambda: any(what.startswith("events/default/one") for what in world.objects))
    [said] = [thing["message"] for what, thing in world.objects.items() if what.startswith("events/default/one")]
    assert said == "Successfully assigned default/one to b-large"


async def test_a_pod_that_fits_nowhere_is_told_why_once_and_placed_when_there_is_room(world: World) -> None:
    schedule(world)
    await a_node(world)
    await a_pod(world, "first", {"memory": "6Gi"})
    await world.until(lambda: node_of(world, "first") == "here")
    await a_pod(world, "second", {"memory": "6Gi"})
    await world.until(lambda: why_it_waits(world, "second") != "")
    assert why_it_waits(world, "second") == "0/1 nodes are available: 1 Insufficient memory."

    await a_pod(world, "third", {"cpu": "1"})
    await world.until(lambda: node_of(world, "third") == "here")
    assert len([one for one in world.happened if one.what == "pods/default/second"]) == 2

    await world.client.patch(PODS, Key("default", "first"), {"status": {"phase": "Succeeded"}}, subresource="status")
    await world.until(lambda: node_of(world, "second") == "here")


async def test_what_changed_about_waiting_is_told(world: World) -> None:
    schedule(world)
    await a_pod(world, "one", {"cpu": "9"})
    await world.until(lambda: why_it_waits(world, "one") == "no nodes available to schedule pods")
    await a_node(world)

    await world.until(lambda: why_it_waits(world, "one") == "0/1 nodes are available: 1 Insufficient cpu.")
    reasons = [one["reason"] for one in pod(world, "one")["status"]["conditions"] if one["type"] == "PodScheduled"]
    assert reasons == ["Unschedulable"]


async def test_a_node_is_never_oversold_however_many_pods_come_at_once(world: World) -> None:
    schedule(world)
    await a_node(world, "a")
    await a_node(world, "b")
    for number in range(12):
        await a_pod(world, f"pod-{number}", {"cpu": "1"})

    def placed() -> list[str]:
        return [node_of(world, f"pod-{number}") for number in range(12)]

    await world.until(
        lambda: sum(map(bool, placed())) == 8 and sum(bool(why_it_waits(world, f"pod-{n}")) for n in range(12)) == 4
    )
    assert sorted(filter(None, placed())) == ["a"] * 4 + ["b"] * 4


async def test_pods_that_others_placed_take_room(world: World) -> None:
    schedule(world)
    await a_node(world)
    await a_pod(world, "theirs", {"cpu": "3"}, nodeName="here")
    await a_pod(world, "ours", {"cpu": "2"})

    await world.until(lambda: why_it_waits(world, "ours") == "0/1 nodes are available: 1 Insufficient cpu.")


async def test_pods_of_another_scheduler_are_not_ours(world: World) -> None:
    schedule(world)
    await a_node(world)
    await a_pod(world, "theirs", schedulerName="tarragon")
    await a_pod(world, "ours")
    await world.until(lambda: node_of(world, "ours") == "here")

    assert node_of(world, "theirs") == ""


async def test_the_more_important_pod_goes_first(world: World) -> None:
    await a_pod(world, "older", {"cpu": "3"}, priority=0)
    await a_pod(world, "important", {"cpu": "3"}, priority=1000)
    await a_node(world)
    schedule(world)

    await world.until(lambda: node_of(world, "important") == "here")
    await world.until(lambda: why_it_waits(world, "older") != "")


async def test_a_binding_that_fails_is_tried_again_and_its_room_is_given_back(world: World) -> None:
    binder = Binder(world.api)
    refusals = [from_status({"code": 503, "reason": "ServiceUnavailable"})]

    async def bind(one: Pod, node: str) -> None:
        if refusals:
            raise refusals.pop()
        await binder.bind(one, node)

    schedule(world, bind)
    await a_node(world, cpu="1")
    await a_pod(world, "one", {"cpu": "1"})

    await world.until(lambda: node_of(world, "one") == "here")
    assert refusals == []


async def test_a_pod_that_is_deleted_while_it_waits_is_forgotten(world: World) -> None:
    schedule(world)
    await a_pod(world, "one", {"cpu": "3"})
    await world.until(lambda: why_it_waits(world, "one") != "")
    await world.delete(PODS, "one")
    await world.gone("pods/default/one")
    await a_node(world)
    await a_pod(world, "two", {"cpu": "3"})

    await world.until(lambda: node_of(world, "two") == "here")
