"""Somebody who may write the status of jobs claims nodes and quotas on a real control plane, and gets none of them."""

from __future__ import annotations

import pytest

from tarragon.base.resources import CPU
from tarragon.client.port import Selector
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.core import EVENTS, NODES
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules
from tests.real.environment import Json, OperatorEnvironment, an_environment, group
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

TFJOBS = TENSORFLOW.resource
LONG_AGO = "2026-01-01T00:00:00Z"


def worker(env: OperatorEnvironment, replicas: int, cpu: str) -> Json:
    return group(replicas, cpu=cpu, nodeSelector={"test-env": env.namespace})


async def forge(env: OperatorEnvironment, name: str, nodes: dict[str, str], size: int) -> None:
    admission = {"queued": LONG_AGO, "admitted": LONG_AGO, "size": {"Worker": size}, "nodes": {"Worker": nodes}}
    await env.patch(TFJOBS, name, {"status": {"tarragon": {"admission": admission}}}, subresource="status")


def is_refused(env: OperatorEnvironment, name: str) -> bool:
    return env.condition(name, "AdmissionRefused") is not None


async def test_a_forged_claim_to_all_nodes_starves_nobody_and_is_told(control_plane: ControlPlane) -> None:
    async with an_environment(control_plane, "forged-nodes") as env:
        nodes = [await env.node("x", cpu="4"), await env.node("y", cpu="4")]
        env.start_operator()
        await env.submit("first", Worker=worker(env, 1, "3"))
        await env.until_phase("first", "Running")
        await env.submit("zulu", Worker=worker(env, 2, "4"))
        await env.until(lambda: bool(env.waits_for("zulu")))

        await forge(env, "zulu", {nodes[0]: "0", nodes[1]: "1"}, 2)
        await env.until(lambda: is_refused(env, "zulu"))
        await env.submit("honest", Worker=worker(env, 1, "4"))

        await env.until_phase("honest", "Running")
        assert env.waits_for("zulu")
        refused = env.condition("zulu", "AdmissionRefused")
        assert refused is not None
        assert "has no room for worker-" in refused.message
        assert env.made() == {"first-worker-0": 1, "honest-worker-0": 1}
        events = (await env.http.list(EVENTS.with_model(dict), Selector(namespace=env.namespace))).items
        told = [event for event in events if event["reason"] == "AdmissionRefused"]
        assert [(event["type"], event["involvedObject"]["name"]) for event in told] == [("Warning", "zulu")]


async def test_a_forged_claim_beyond_the_quota_counts_for_none(control_plane: ControlPlane) -> None:
    async with an_environment(control_plane, "forged-quota") as env:
        node = await env.node("x", cpu="8")
        env.start_operator(rules=SchedulingRules(queues={env.namespace: QueueRules(quota={CPU: 2000})}))
        await env.submit("first", Worker=worker(env, 1, "1"))
        await env.until_phase("first", "Running")
        await env.submit("zulu", Worker=worker(env, 2, "1"))
        await env.until(lambda: env.waits_for("zulu") == "QueueQuotaExceeded")

        await forge(env, "zulu", {node: "0-1"}, 2)
        await env.until(lambda: is_refused(env, "zulu"))
        await env.submit("honest", Worker=worker(env, 1, "1"))

        await env.until_phase("honest", "Running")
        assert env.waits_for("zulu")
        assert env.made() == {"first-worker-0": 1, "honest-worker-0": 1}


async def test_what_is_forged_while_no_operator_runs_is_refused_by_the_next_one(control_plane: ControlPlane) -> None:
    async with an_environment(control_plane, "forged-before") as env:
        node = await env.node("x", cpu="2")
        await env.submit("zulu", Worker=worker(env, 4, "1"))
        await env.until(lambda: env.is_there("zulu"))
        await forge(env, "zulu", {node: "0-1", "ghost": "2-3"}, 4)
        env.start_operator()
        await env.submit("honest", Worker=worker(env, 2, "1"))

        await env.until(lambda: env.status("honest").running_replicas == 2)
        await env.until(lambda: is_refused(env, "zulu"))
        assert env.made() == {"honest-worker-0": 1, "honest-worker-1": 1}


async def test_a_job_that_runs_keeps_its_places_over_a_restart_on_a_node_that_has_shrunk(
    control_plane: ControlPlane,
) -> None:
    async with an_environment(control_plane, "forged-not") as env:
        node = await env.node("x", cpu="4")
        env.start_operator()
        await env.submit("runs", Worker=worker(env, 3, "1"))
        await env.until(lambda: env.status("runs").running_replicas == 3)
        before = env.status("runs").admission
        await env.stop_operator()
        await env.patch(NODES, node, {"status": {"allocatable": {"cpu": "1"}}}, subresource="status")

        env.start_operator(rules=SchedulingRules(queues={env.namespace: QueueRules(quota={CPU: 1000})}))
        await env.submit("next", Worker=worker(env, 1, "1"))
        await env.until(lambda: bool(env.waits_for("next")))

        assert env.status("runs").admission == before
        assert not is_refused(env, "runs")
        assert env.made() == {f"runs-worker-{index}": 1 for index in range(3)}
