from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarragon.client.errors import error_from_status
from tarragon.kube.core import NODES, PODS, Pod
from tarragon.kube.meta import Key
from tarragon.localcluster.registry.client import Binder
from tarragon.localcluster.scheduler.scheduler import Bind, Scheduler
from tests.localcluster.controllers.world import ControllerTest, EmbeddedCluster, Json, pod_spec


def schedule(scene: ControllerTest, bind: Bind | None = None) -> None:
    scene.begin(lambda world: Scheduler(world.client, bind or Binder(world.api).bind, world.clock, world.jitter))


async def a_node(scene: ControllerTest, name: str = "here", **amounts: str) -> None:
    """Create a node with its own label, for pods that must not use nodes of other tests."""
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10", **amounts}
    await scene.create(NODES, name, labels={"called": scene.key(NODES, name).name})
    # A real node has more conditions and reports them repeatedly.
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": allocatable, "capacity": allocatable, "conditions": conditions}
    await scene.patch(NODES, name, {"status": status}, subresource="status")


async def a_pod(scene: ControllerTest, name: str, requests: Mapping[str, str] | None = None, **spec: Any) -> None:
    container = {"resources": {"requests": dict(requests or {})}}
    await scene.create(PODS, name, spec=pod_spec(container=container, **spec))


def pod(scene: ControllerTest, name: str) -> Json:
    return scene.objects.get(f"pods/default/{name}", {"spec": {}})


def node_of(scene: ControllerTest, name: str) -> str:
    return str(pod(scene, name)["spec"].get("nodeName", ""))


def why_it_waits(scene: ControllerTest, name: str) -> str:
    conditions = pod(scene, name).get("status", {}).get("conditions", [])
    return next(
        (one["message"] for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"), ""
    )


async def test_a_pod_is_bound_to_the_first_node_that_fits(world: EmbeddedCluster) -> None:
    schedule(world)
    await a_node(world, "a-small", cpu="1")
    await a_node(world, "b-large")
    await a_node(world, "c-large")
    await a_pod(world, "one", {"cpu": "2"})

    await world.until(lambda: node_of(world, "one") == "b-large")
    await world.until(lambda: any(what.startswith("events/default/one") for what in world.objects))
    [message] = [thing["message"] for what, thing in world.objects.items() if what.startswith("events/default/one")]
    assert message == "Successfully assigned default/one to b-large"


async def test_a_pod_with_gates_takes_no_room_and_is_bound_when_they_are_removed(world: EmbeddedCluster) -> None:
    schedule(world)
    await a_node(world)
    await a_pod(world, "gated", {"cpu": "3"}, schedulingGates=[{"name": "hold"}])
    await a_pod(world, "other", {"cpu": "3"})
    await world.until(lambda: node_of(world, "other") == "here")
    assert why_it_waits(world, "gated") == "Scheduling is blocked due to non-empty scheduling gates"

    await world.client.patch(PODS, Key("default", "other"), {"status": {"phase": "Succeeded"}}, subresource="status")
    await world.client.patch(PODS, Key("default", "gated"), {"spec": {"schedulingGates": None}})
    await world.until(lambda: node_of(world, "gated") == "here")


async def test_an_unschedulable_pod_gets_one_event_and_is_bound_when_there_is_capacity(world: EmbeddedCluster) -> None:
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


async def test_a_new_reason_why_a_pod_is_unschedulable_is_reported(world: EmbeddedCluster) -> None:
    schedule(world)
    await a_pod(world, "one", {"cpu": "9"})
    await world.until(lambda: why_it_waits(world, "one") == "no nodes available to schedule pods")
    await a_node(world)

    await world.until(lambda: why_it_waits(world, "one") == "0/1 nodes are available: 1 Insufficient cpu.")
    reasons = [one["reason"] for one in pod(world, "one")["status"]["conditions"] if one["type"] == "PodScheduled"]
    assert reasons == ["Unschedulable"]


async def test_a_node_is_never_overcommitted_by_pods_that_arrive_together(world: EmbeddedCluster) -> None:
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


async def test_pods_bound_by_others_use_capacity(world: EmbeddedCluster) -> None:
    schedule(world)
    await a_node(world)
    await a_pod(world, "theirs", {"cpu": "3"}, nodeName="here")
    await a_pod(world, "ours", {"cpu": "2"})

    await world.until(lambda: why_it_waits(world, "ours") == "0/1 nodes are available: 1 Insufficient cpu.")


async def test_pods_of_another_scheduler_are_ignored(world: EmbeddedCluster) -> None:
    schedule(world)
    await a_node(world)
    await a_pod(world, "theirs", schedulerName="tarragon")
    await a_pod(world, "ours")
    await world.until(lambda: node_of(world, "ours") == "here")

    assert node_of(world, "theirs") == ""


async def test_pods_are_scheduled_in_order_of_priority(world: EmbeddedCluster) -> None:
    await a_pod(world, "older", {"cpu": "3"}, priority=0)
    await a_pod(world, "important", {"cpu": "3"}, priority=1000)
    await a_node(world)
    schedule(world)

    await world.until(lambda: node_of(world, "important") == "here")
    await world.until(lambda: why_it_waits(world, "older") != "")


async def test_a_failed_binding_releases_its_capacity_and_is_retried(world: EmbeddedCluster) -> None:
    binder = Binder(world.api)
    refusals = [error_from_status({"code": 503, "reason": "ServiceUnavailable"})]

    async def bind(one: Pod, node: str) -> None:
        if refusals:
            raise refusals.pop()
        await binder.bind(one, node)

    schedule(world, bind)
    await a_node(world, cpu="1")
    await a_pod(world, "one", {"cpu": "1"})

    await world.until(lambda: node_of(world, "one") == "here")
    assert refusals == []


async def test_a_pod_deleted_while_pending_is_dropped(world: EmbeddedCluster) -> None:
    schedule(world)
    await a_pod(world, "one", {"cpu": "3"})
    await world.until(lambda: why_it_waits(world, "one") != "")
    await world.delete(PODS, "one")
    await world.gone("pods/default/one")
    await a_node(world)
    await a_pod(world, "two", {"cpu": "3"})

    await world.until(lambda: node_of(world, "two") == "here")


async def test_a_pending_pod_has_a_reason_and_is_bound_when_there_is_capacity(scene: ControllerTest) -> None:
    schedule(scene)
    only_here = {"called": scene.key(NODES, "here").name}
    await a_node(scene)
    await a_pod(scene, "first", {"memory": "6Gi"}, nodeSelector=only_here)
    await scene.until(lambda: node_of(scene, "first") == scene.key(NODES, "here").name)
    await a_pod(scene, "second", {"memory": "6Gi"}, nodeSelector=only_here)
    await scene.until(lambda: "1 Insufficient memory" in why_it_waits(scene, "second"))
    reasons = [one["reason"] for one in pod(scene, "second")["status"]["conditions"] if one["status"] == "False"]

    await scene.patch(PODS, "first", {"status": {"phase": "Succeeded"}}, subresource="status")
    await scene.until(lambda: node_of(scene, "second") == scene.key(NODES, "here").name)

    assert reasons == ["Unschedulable"]
    messages = {one["type"]: one["status"] for one in pod(scene, "second")["status"]["conditions"]}
    assert messages["PodScheduled"] == "True"


async def test_a_binding_is_recorded_in_an_event_of_the_pod(scene: ControllerTest) -> None:
    schedule(scene)
    here = scene.key(NODES, "here").name
    await a_node(scene)
    await a_pod(scene, "one", nodeSelector={"called": here})

    def messages() -> list[Json]:
        about = [thing for what, thing in scene.objects.items() if what.startswith("events/default/one.")]
        return [one for one in about if one["reason"] == "Scheduled"]

    await scene.until(lambda: bool(messages()))
    [event] = messages()
    namespace = scene.key(PODS, "one").namespace
    assert event["message"] == f"Successfully assigned {namespace}/one to {here}"
    assert event["type"] == "Normal"
    assert event["involvedObject"]["uid"] == pod(scene, "one")["metadata"]["uid"]


async def test_cordoned_and_tainted_nodes_get_no_pods(scene: ControllerTest) -> None:
    schedule(scene)
    only_here = {"called": scene.key(NODES, "here").name}
    await a_node(scene)
    await scene.patch(NODES, "here", {"spec": {"unschedulable": True}})
    await a_pod(scene, "one", nodeSelector=only_here)
    await scene.until(lambda: "1 node(s) were unschedulable" in why_it_waits(scene, "one"))

    await scene.patch(NODES, "here", {"spec": {"unschedulable": None, "taints": None}})
    await scene.until(lambda: node_of(scene, "one") == scene.key(NODES, "here").name)
