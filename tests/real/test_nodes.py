"""Nodes come and go on a real control plane: its node controller, its evictions, its scheduler beside ours."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tarragon.base.clock import SystemClock
from tarragon.client.errors import ApiError
from tarragon.kube.core import NODES
from tarragon.kube.meta import Key, PartialObjectMetadata, Resource
from tarragon.localcluster.kubelet.hollow.kubelet import HollowKubelet, HollowSettings
from tests.real.ground import HOST, Ground, a_ground, group
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PRIORITIES = Resource(
    group="scheduling.k8s.io",
    version="v1",
    plural="priorityclasses",
    kind="PriorityClass",
    model=PartialObjectMetadata,
    namespaced=False,
)
DEPLOYMENTS = Resource(group="apps", version="v1", plural="deployments", kind="Deployment", model=PartialObjectMetadata)
PAIR = ("a-worker-0", "a-worker-1")


def worker(ground: Ground, replicas: int, **spec: Any) -> dict[str, Any]:
    """Each wants a CPU, on a node of this ground."""
    found = group(replicas, nodeSelector={"ground": ground.namespace}, **spec)
    found["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return found


async def runs_on_two_nodes(ground: Ground, **spec: Any) -> None:
    """A worker on each of the nodes `x` and `y`."""
    await ground.node("x", cpu="1")
    await ground.node("y", cpu="1")
    await ground.submit("a", Worker=worker(ground, 2, **spec))
    await ground.until(lambda: ground.status("a").running_replicas == 2)


def pod_on(ground: Ground, word: str) -> str:
    return next(name for name, pod in ground.pods.items() if pod["spec"].get("nodeName") == ground.name(word))


def is_on(ground: Ground, pod: str, word: str) -> bool:
    found = ground.pods.get(pod)
    return (
        found is not None
        and found["spec"].get("nodeName") == ground.name(word)
        and found["status"]["phase"] == "Running"
    )


@pytest.mark.soak  # its nodes have no heartbeats: on a slow machine the controller takes all of them for lost
async def test_what_the_node_controller_evicts_goes_to_another_node(control_plane: ControlPlane) -> None:
    async with a_ground(control_plane, "not-ready") as ground:
        ground.start_operator()
        gone = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        await runs_on_two_nodes(ground, tolerations=[{"key": "node.kubernetes.io/not-ready", **gone}])
        moved = pod_on(ground, "x")
        await ground.node("z", cpu="1")
        lost = {"type": "Ready", "status": "False", "reason": "Test", "message": "of a test"}
        await ground.patch(NODES, ground.name("x"), {"status": {"conditions": [lost]}}, subresource="status")
        await ground.until(lambda: is_on(ground, moved, "z"))
        await ground.until(lambda: ground.status("a").running_replicas == 2)

        assert not ground.status("a").restarts
        assert ground.made()[moved] == 2


async def test_a_node_that_is_drained_with_kubectl_costs_its_job_no_restart(control_plane: ControlPlane) -> None:
    async with a_ground(control_plane, "drain") as ground:
        ground.start_operator()
        await runs_on_two_nodes(ground)
        moved = pod_on(ground, "y")
        await ground.node("z", cpu="1")
        words = ["kubectl", "--kubeconfig", str(control_plane.kubeconfig), "drain", ground.name("y")]
        drain = await asyncio.create_subprocess_exec(*words, "--force", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = await drain.communicate()
        assert drain.returncode == 0, (out, err)
        await ground.until(lambda: is_on(ground, moved, "z"))

        assert not ground.status("a").restarts
        assert ground.made() == {**dict.fromkeys(PAIR, 1), moved: 2}


async def test_a_replica_of_a_deleted_node_that_has_nowhere_to_go_is_told_to_want_another_place(
    control_plane: ControlPlane,
) -> None:
    """Its pod is collected by Kubernetes after a minute: only then its machine is known not to come back soon."""
    async with a_ground(control_plane, "deleted") as ground:
        ground.start_operator()
        await runs_on_two_nodes(ground)
        lost = pod_on(ground, "x")
        await ground.delete(NODES, ground.name("x"))
        await ground.until(lambda: lost not in ground.pods)
        await ground.until(
            lambda: ground.condition("a", "Blocked") is not None and ground.status("a").running_replicas == 1
        )

        blocked = ground.condition("a", "Blocked")
        assert blocked is not None
        assert blocked.reason == "NodeAway"
        assert blocked.message.endswith(f"needs another node: node {ground.name('x')} no longer exists")
        await ground.node("z", cpu="1")
        await ground.until(lambda: is_on(ground, lost, "z"))
        assert sum(record.counted_for_backoff_limit for record in ground.status("a").restarts.values()) == 0


@asynccontextmanager
async def hollow(ground: Ground, count: int, cpus: int) -> AsyncIterator[None]:
    """Nodes whose kubelet refuses what does not fit."""
    ground.starts_pods = False
    names = [ground.name(f"n{number}") for number in range(count)]
    settings = HollowSettings(
        names=names,
        capacity={"cpu": cpus * 1000, "memory": 2**34 * 1000, "pods": 110_000},
        labels={"ground": ground.namespace},
    )
    kubelet = HollowKubelet(ground.http, settings, SystemClock())
    running = asyncio.create_task(kubelet.run())
    try:
        await kubelet.registered()
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for name in names:
            with suppress(ApiError):
                await ground.http.delete(NODES, Key("", name))


def urgent_pod_on(ground: Ground, node: str) -> Mapping[str, Any]:
    """The spec of a Deployment: its one pod has the priority class `urgent` and may run on this node only."""
    labels = {"app": "urgent"}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    urgent = {"priorityClassName": ground.name("urgent"), "nodeSelector": {HOST: node}, "containers": [container]}
    return {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": urgent}}


def on_each_node(ground: Ground) -> Mapping[str, int]:
    running = (pod for pod in ground.pods.values() if pod["status"].get("phase") == "Running")
    return Counter(pod["spec"]["nodeName"] for pod in running)


async def test_who_gives_way_to_a_more_urgent_pod_goes_to_another_node(control_plane: ControlPlane) -> None:
    """kube-scheduler 1.20 deletes a victim before it nominates the node, so the job's next pod may get there first.

    The kubelet then refuses the urgent pod. It belongs to a Deployment, which makes it again, as on a real cluster.
    """
    async with a_ground(control_plane, "preempted") as ground, hollow(ground, 3, cpus=1):
        ground.start_operator()
        await ground.submit("a", Worker=worker(ground, 2))
        await ground.until(lambda: ground.status("a").running_replicas == 2)
        taken = {pod["spec"]["nodeName"]: name for name, pod in ground.pods.items()}
        wanted = min(taken)
        await ground.create(PRIORITIES, ground.name("urgent"), value=1000)
        await ground.create(DEPLOYMENTS, "urgent", spec=urgent_pod_on(ground, wanted))

        def all_run() -> bool:
            assert all(times <= 1 for times in on_each_node(ground).values()), on_each_node(ground)
            return ground.status("a").running_replicas == 2 and sum(on_each_node(ground).values()) == 3

        await ground.until(all_run)

        assert ground.pods[taken[wanted]]["spec"]["nodeName"] not in taken
        assert sum(record.counted_for_backoff_limit for record in ground.status("a").restarts.values()) == 0


async def test_beside_pods_that_kube_scheduler_places_no_node_is_ever_oversold(control_plane: ControlPlane) -> None:
    """Both see free places and take them at the same moment; who comes second is sent back, and placed again."""
    async with a_ground(control_plane, "beside") as ground, hollow(ground, 4, cpus=4):
        ground.start_operator()
        labels = {"app": "web"}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        here = {"containers": [container], "nodeSelector": {"ground": ground.namespace}}
        template = {"metadata": {"labels": labels}, "spec": here}
        spec = {"replicas": 7, "selector": {"matchLabels": labels}, "template": template}
        jobs = [f"job-{number}" for number in range(4)]
        steps = [ground.create(DEPLOYMENTS, "web", spec=spec)]
        steps += [ground.submit(name, Worker=worker(ground, 2)) for name in jobs]
        random.Random(1).shuffle(steps)
        await asyncio.gather(*steps)

        def all_run() -> bool:
            assert all(times <= 4 for times in on_each_node(ground).values()), on_each_node(ground)
            return (
                all(ground.status(name).running_replicas == 2 for name in jobs)
                and sum(on_each_node(ground).values()) == 15
            )

        await ground.until(all_run)

        restarts = [record for name in jobs for record in ground.status(name).restarts.values()]
        assert sum(record.counted_for_backoff_limit for record in restarts) == 0
