"""Pods that get scheduling gates from somebody else, such as a webhook of the cluster."""

from __future__ import annotations

from typing import Any

from tarragon.client.port import DeleteOptions
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tarragon.localcluster.registry.client import Binder
from tarragon.localcluster.scheduler.scheduler import Scheduler
from tests.operator.stage import Stage, group

Json = dict[str, Any]


async def test_a_gang_whose_pods_are_gated_by_a_webhook_keeps_its_nodes_until_the_gates_are_gone(stage: Stage) -> None:
    has_node: list[bool] = []

    def add_gate(pod: Json) -> None:
        has_node.append("nodeName" in pod["spec"])
        pod["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]

    await stage.node("n1")
    stage.world.api.set_pod_admission(add_gate)
    await stage.submit("job", Worker=group(2, cpu="4"))
    stage.start_operator()

    await stage.until_pods("job-worker-0", "job-worker-1")
    await stage.world.until(lambda: shown(stage, "job").get("reason") == "SchedulingGated")
    await stage.submit("next", Worker=group(1, cpu="4"))
    await stage.world.until(lambda: shown(stage, "next").get("reason") == "InsufficientResources")

    assert all("nodeName" not in pod["spec"] for pod in stage.pods().values())
    assert all("n1" in str(pod["spec"]["affinity"]) for pod in stage.pods().values())
    assert "example.com/quota" in shown(stage, "job")["message"]
    for name in stage.pods():
        await stage.world.client.patch(PODS, Key("default", name), {"spec": {"schedulingGates": None}})
    world = stage.world
    stage.start(Scheduler(world.client, Binder(world.api).bind, world.clock, world.jitter).run())
    await world.until(lambda: [pod["spec"].get("nodeName") for pod in stage.pods().values()] == ["n1", "n1"])

    # The webhook is remembered when no pod has a gate any more.
    has_node.clear()
    await world.client.delete(PODS, Key("default", "job-worker-1"), DeleteOptions(grace_period_seconds=0))
    await world.until(lambda: bool(stage.pods().get("job-worker-1", {}).get("spec", {}).get("schedulingGates")))
    assert has_node == [False]


def shown(stage: Stage, name: str) -> Json:
    found: Json = (stage.job(name).get("status") or {}).get("tarragon", {})
    return found
