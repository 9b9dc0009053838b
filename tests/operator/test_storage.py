"""Jobs whose replicas use volumes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from tarragon.kube.core import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    PodSpec,
)
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.plan.objects.placement import assigned_node
from tests.operator.stage import Stage, group
from tests.operator.test_left import Guarded

HOST = "kubernetes.io/hostname"


def using(claim: str) -> dict[str, Any]:
    worker = group(1, cpu="1")
    worker["template"]["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
    return worker


def here(node: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
    return {"required": {"nodeSelectorTerms": [term]}}


async def node(stage: Stage, name: str) -> None:
    await stage.node(name)
    await stage.world.client.patch(NODES, Key("", name), {"metadata": {"labels": {HOST: name}}})


async def claim(stage: Stage, name: str, *, volume: str = "") -> None:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "k",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    if volume:
        spec["volumeName"] = volume
    await stage.world.create(PERSISTENT_VOLUME_CLAIMS, name, spec=spec)
    if volume:
        bound = {"status": {"phase": "Bound"}}
        await stage.world.client.patch(PERSISTENT_VOLUME_CLAIMS, Key("default", name), bound, subresource="status")


async def volume(stage: Stage, name: str, home: str) -> None:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "k",
        "local": {"path": "/d"},
        "nodeAffinity": here(home),
    }
    await stage.world.create(PERSISTENT_VOLUMES, name, namespace="", spec=spec)


def place(stage: Stage, pod: str) -> str:
    return assigned_node(msgspec.convert(stage.pods()[pod]["spec"], PodSpec))


async def test_a_replica_is_placed_where_its_volume_is(stage: Stage) -> None:
    for name in ("a", "b", "c"):
        await node(stage, name)
    await volume(stage, "pv", "b")
    await claim(stage, "data", volume="pv")
    stage.start_operator()
    await stage.submit("j", Worker=using("data"))
    await stage.until_pods("j-worker-0")

    assert stage.pods()["j-worker-0"]["spec"]["nodeName"] == "b"


async def test_a_job_waits_until_there_is_a_volume_for_its_claim_and_starts_where_that_is(stage: Stage) -> None:
    for name in ("a", "b"):
        await node(stage, name)
    await stage.world.create(
        STORAGE_CLASSES,
        "k",
        namespace="",
        provisioner="kubernetes.io/no-provisioner",
        volumeBindingMode="WaitForFirstConsumer",
    )
    await claim(stage, "data")
    stage.start_operator()
    await stage.submit("j", Worker=using("data"))
    await stage.world.until(lambda: "volumes" in stage.admission("j").get("wait", {}).get("message", ""))

    await volume(stage, "pv", "b")
    available = {"status": {"phase": "Available"}}
    await stage.world.client.patch(PERSISTENT_VOLUMES, Key("", "pv"), available, subresource="status")
    await stage.until_pods("j-worker-0")
    assert place(stage, "j-worker-0") == "b"
    assert "nodeName" not in stage.pods()["j-worker-0"]["spec"]


async def test_an_operator_that_may_not_read_volumes_leaves_binding_to_kube_scheduler(stage: Stage) -> None:
    await node(stage, "a")
    guarded = Guarded(stage.world.api, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
    guarded.withdrawn.set()
    operator = asyncio.create_task(Operator(guarded, stage.world.clock, OperatorOptions(seed=1)).run())
    await claim(stage, "data", volume="pv")
    await stage.submit("j", Worker=using("data"))
    await stage.submit("k", Worker=group(1))
    await stage.until_pods("j-worker-0", "k-worker-0")

    assert place(stage, "j-worker-0") == "a"
    assert "nodeName" not in stage.pods()["j-worker-0"]["spec"]
    assert stage.pods()["k-worker-0"]["spec"]["nodeName"] == "a"
    await stage.kill(operator)
