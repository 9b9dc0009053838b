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
from tests.real.environment import HOST, OperatorEnvironment, an_environment, group
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


def worker(env: OperatorEnvironment, replicas: int, **spec: Any) -> dict[str, Any]:
    """Each wants a CPU, on a node of this env."""
    found = group(replicas, nodeSelector={"test-env": env.namespace}, **spec)
    found["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return found


async def runs_on_two_nodes(env: OperatorEnvironment, **spec: Any) -> None:
    """A worker on each of the nodes `x` and `y`."""
    await env.node("x", cpu="1")
    await env.node("y", cpu="1")
    await env.submit("a", Worker=worker(env, 2, **spec))
    await env.until(lambda: env.status("a").running_replicas == 2)


def pod_on(env: OperatorEnvironment, word: str) -> str:
    return next(name for name, pod in env.pods.items() if pod["spec"].get("nodeName") == env.name(word))


def is_on(env: OperatorEnvironment, pod: str, word: str) -> bool:
    found = env.pods.get(pod)
    return (
        found is not None and found["spec"].get("nodeName") == env.name(word) and found["status"]["phase"] == "Running"
    )


@pytest.mark.soak  # its nodes have no heartbeats: on a slow machine the controller takes all of them for lost
async def test_what_the_node_controller_evicts_goes_to_another_node(control_plane: ControlPlane) -> None:
    async with an_environment(control_plane, "not-ready") as env:
        env.start_operator()
        gone = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        await runs_on_two_nodes(env, tolerations=[{"key": "node.kubernetes.io/not-ready", **gone}])
        moved = pod_on(env, "x")
        await env.node("z", cpu="1")
        lost = {"type": "Ready", "status": "False", "reason": "Test", "message": "of a test"}
        await env.patch(NODES, env.name("x"), {"status": {"conditions": [lost]}}, subresource="status")
        await env.until(lambda: is_on(env, moved, "z"))
        await env.until(lambda: env.status("a").running_replicas == 2)

        assert not env.status("a").restarts
        assert env.made()[moved] == 2


async def test_a_node_that_is_drained_with_kubectl_costs_its_job_no_restart(control_plane: ControlPlane) -> None:
    async with an_environment(control_plane, "drain") as env:
        env.start_operator()
        await runs_on_two_nodes(env)
        moved = pod_on(env, "y")
        await env.node("z", cpu="1")
        words = ["kubectl", "--kubeconfig", str(control_plane.kubeconfig), "drain", env.name("y")]
        drain = await asyncio.create_subprocess_exec(*words, "--force", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = await drain.communicate()
        assert drain.returncode == 0, (out, err)
        await env.until(lambda: is_on(env, moved, "z"))

        assert not env.status("a").restarts
        assert env.made() == {**dict.fromkeys(PAIR, 1), moved: 2}


async def test_a_replica_of_a_deleted_node_that_has_nowhere_to_go_is_told_to_want_another_place(
    control_plane: ControlPlane,
) -> None:
    """Its pod is collected by Kubernetes after a minute: only then its machine is known not to come back soon."""
    async with an_environment(control_plane, "deleted") as env:
        env.start_operator()
        await runs_on_two_nodes(env)
        lost = pod_on(env, "x")
        await env.delete(NODES, env.name("x"))
        await env.until(lambda: lost not in env.pods)
        await env.until(lambda: env.condition("a", "Blocked") is not None and env.status("a").running_replicas == 1)

        blocked = env.condition("a", "Blocked")
        assert blocked is not None
        assert blocked.reason == "NodeAway"
        assert blocked.message.endswith(f"needs another node: node {env.name('x')} no longer exists")
        await env.node("z", cpu="1")
        await env.until(lambda: is_on(env, lost, "z"))
        assert sum(record.counted_for_backoff_limit for record in env.status("a").restarts.values()) == 0


@asynccontextmanager
async def hollow(env: OperatorEnvironment, count: int, cpus: int) -> AsyncIterator[None]:
    """Nodes whose kubelet refuses what does not fit."""
    env.starts_pods = False
    names = [env.name(f"n{number}") for number in range(count)]
    settings = HollowSettings(
        names=names,
        capacity={"cpu": cpus * 1000, "memory": 2**34 * 1000, "pods": 110_000},
        labels={"test-env": env.namespace},
    )
    kubelet = HollowKubelet(env.http, settings, SystemClock())
    running = asyncio.create_task(kubelet.run())
    try:
        await kubelet.registered()
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for name in names:
            with suppress(ApiError):
                await env.http.delete(NODES, Key("", name))


def urgent_pod_on(env: OperatorEnvironment, node: str) -> Mapping[str, Any]:
    """The spec of a Deployment: its one pod has the priority class `urgent` and may run on this node only."""
    labels = {"app": "urgent"}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    urgent = {"priorityClassName": env.name("urgent"), "nodeSelector": {HOST: node}, "containers": [container]}
    return {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": urgent}}


def on_each_node(env: OperatorEnvironment) -> Mapping[str, int]:
    running = (pod for pod in env.pods.values() if pod["status"].get("phase") == "Running")
    return Counter(pod["spec"]["nodeName"] for pod in running)


async def test_who_gives_way_to_a_more_urgent_pod_goes_to_another_node(control_plane: ControlPlane) -> None:
    """kube-scheduler 1.20 deletes a victim before it nominates the node, so the job's next pod may get there first.

    The kubelet then refuses the urgent pod. It belongs to a Deployment, which makes it again, as on a real cluster.
    """
    async with an_environment(control_plane, "preempted") as env, hollow(env, 3, cpus=1):
        env.start_operator()
        await env.submit("a", Worker=worker(env, 2))
        await env.until(lambda: env.status("a").running_replicas == 2)
        taken = {pod["spec"]["nodeName"]: name for name, pod in env.pods.items()}
        wanted = min(taken)
        await env.create(PRIORITIES, env.name("urgent"), value=1000)
        await env.create(DEPLOYMENTS, "urgent", spec=urgent_pod_on(env, wanted))

        def all_run() -> bool:
            assert all(times <= 1 for times in on_each_node(env).values()), on_each_node(env)
            return env.status("a").running_replicas == 2 and sum(on_each_node(env).values()) == 3

        await env.until(all_run)

        assert env.pods[taken[wanted]]["spec"]["nodeName"] not in taken
        assert sum(record.counted_for_backoff_limit for record in env.status("a").restarts.values()) == 0


async def test_beside_pods_that_kube_scheduler_places_no_node_is_ever_oversold(control_plane: ControlPlane) -> None:
    """Both see free places and take them at the same moment; who comes second is sent back, and placed again."""
    async with an_environment(control_plane, "beside") as env, hollow(env, 4, cpus=4):
        env.start_operator()
        labels = {"app": "web"}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        here = {"containers": [container], "nodeSelector": {"test-env": env.namespace}}
        template = {"metadata": {"labels": labels}, "spec": here}
        spec = {"replicas": 7, "selector": {"matchLabels": labels}, "template": template}
        jobs = [f"job-{number}" for number in range(4)]
        steps = [env.create(DEPLOYMENTS, "web", spec=spec)]
        steps += [env.submit(name, Worker=worker(env, 2)) for name in jobs]
        random.Random(1).shuffle(steps)
        await asyncio.gather(*steps)

        def all_run() -> bool:
            assert all(times <= 4 for times in on_each_node(env).values()), on_each_node(env)
            return (
                all(env.status(name).running_replicas == 2 for name in jobs) and sum(on_each_node(env).values()) == 15
            )

        await env.until(all_run)

        restarts = [record for name in jobs for record in env.status(name).restarts.values()]
        assert sum(record.counted_for_backoff_limit for record in restarts) == 0
