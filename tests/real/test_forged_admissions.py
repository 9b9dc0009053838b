"""Somebody who may write the status of jobs claims nodes and quotas on a real control plane, and gets none of them."""

from __future__ import annotations

import pytest

from tarragon.base.resources import CPU
from tarragon.client.port import Selector
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.core import EVENTS, NODES
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules
from tests.real.ground import Ground, Json, a_ground, group
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

TFJOBS = TENSORFLOW.resource
LONG_AGO = "2026-01-01T00:00:00Z"


def worker(ground: Ground, replicas: int, cpu: str) -> Json:
    return group(replicas, cpu=cpu, nodeSelector={"ground": ground.namespace})


async def forge(ground: Ground, name: str, nodes: dict[str, str], size: int) -> None:
    admission = {"queued": LONG_AGO, "admitted": LONG_AGO, "size": {"Worker": size}, "nodes": {"Worker": nodes}}
    await ground.patch(TFJOBS, name, {"status": {"tarragon": {"admission": admission}}}, subresource="status")


def is_refused(ground: Ground, name: str) -> bool:
    return ground.condition(name, "AdmissionRefused") is not None


async def test_a_forged_claim_to_all_nodes_starves_nobody_and_is_told(control_plane: ControlPlane) -> None:
    async with a_ground(control_plane, "forged-nodes") as ground:
        nodes = [await ground.node("x", cpu="4"), await ground.node("y", cpu="4")]
        ground.start_operator()
        await ground.submit("first", Worker=worker(ground, 1, "3"))
        await ground.until_phase("first", "Running")
        await ground.submit("zulu", Worker=worker(ground, 2, "4"))
        await ground.until(lambda: bool(ground.waits_for("zulu")))

        await forge(ground, "zulu", {nodes[0]: "0", nodes[1]: "1"}, 2)
        await ground.until(lambda: is_refused(ground, "zulu"))
        await ground.submit("honest", Worker=worker(ground, 1, "4"))

        await ground.until_phase("honest", "Running")
        assert ground.waits_for("zulu")
        refused = ground.condition("zulu", "AdmissionRefused")
        assert refused is not None
        assert "has no room for worker-" in refused.message
        assert ground.made() == {"first-worker-0": 1, "honest-worker-0": 1}
        events = (await ground.http.list(EVENTS.with_model(dict), Selector(namespace=ground.namespace))).items
        told = [event for event in events if event["reason"] == "AdmissionRefused"]
        assert [(event["type"], event["involvedObject"]["name"]) for event in told] == [("Warning", "zulu")]


async def test_a_forged_claim_beyond_the_quota_counts_for_none(control_plane: ControlPlane) -> None:
    async with a_ground(control_plane, "forged-quota") as ground:
        node = await ground.node("x", cpu="8")
        ground.start_operator(rules=SchedulingRules(queues={ground.namespace: QueueRules(quota={CPU: 2000})}))
        await ground.submit("first", Worker=worker(ground, 1, "1"))
        await ground.until_phase("first", "Running")
        await ground.submit("zulu", Worker=worker(ground, 2, "1"))
        await ground.until(lambda: ground.waits_for("zulu") == "QueueQuotaExceeded")

        await forge(ground, "zulu", {node: "0-1"}, 2)
        await ground.until(lambda: is_refused(ground, "zulu"))
        await ground.submit("honest", Worker=worker(ground, 1, "1"))

        await ground.until_phase("honest", "Running")
        assert ground.waits_for("zulu")
        assert ground.made() == {"first-worker-0": 1, "honest-worker-0": 1}


async def test_what_is_forged_while_no_operator_runs_is_refused_by_the_next_one(control_plane: ControlPlane) -> None:
    async with a_ground(control_plane, "forged-before") as ground:
        node = await ground.node("x", cpu="2")
        await ground.submit("zulu", Worker=worker(ground, 4, "1"))
        await ground.until(lambda: ground.is_there("zulu"))
        await forge(ground, "zulu", {node: "0-1", "ghost": "2-3"}, 4)
        ground.start_operator()
        await ground.submit("honest", Worker=worker(ground, 2, "1"))

        await ground.until(lambda: ground.status("honest").running_replicas == 2)
        await ground.until(lambda: is_refused(ground, "zulu"))
        assert ground.made() == {"honest-worker-0": 1, "honest-worker-1": 1}


async def test_a_job_that_runs_keeps_its_places_over_a_restart_on_a_node_that_has_shrunk(
    control_plane: ControlPlane,
) -> None:
    async with a_ground(control_plane, "forged-not") as ground:
        node = await ground.node("x", cpu="4")
        ground.start_operator()
        await ground.submit("runs", Worker=worker(ground, 3, "1"))
        await ground.until(lambda: ground.status("runs").running_replicas == 3)
        before = ground.status("runs").admission
        await ground.stop_operator()
        await ground.patch(NODES, node, {"status": {"allocatable": {"cpu": "1"}}}, subresource="status")

        ground.start_operator(rules=SchedulingRules(queues={ground.namespace: QueueRules(quota={CPU: 1000})}))
        await ground.submit("next", Worker=worker(ground, 1, "1"))
        await ground.until(lambda: bool(ground.waits_for("next")))

        assert ground.status("runs").admission == before
        assert not is_refused(ground, "runs")
        assert ground.made() == {f"runs-worker-{index}": 1 for index in range(3)}
