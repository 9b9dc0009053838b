"""What is promised to a job and not yet held by a pod is nobody else's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.core import NODES, PODS
from tarragon.kube.meta import Key
from tarragon.plan.objects.placement import with_node_affinity
from tarragon.plan.objects.settings import OperatorSettings
from tests.operator.stage import TFJOBS, Json, Stage, group
from tests.operator.test_admission import Scheduler, a_scheduler

LONG_AGO = "2026-01-01T00:00:00Z"


def spec_of_pod(cpu: str) -> Json:
    template: Json = group(1, cpu=cpu)["template"]
    return {"restartPolicy": "OnFailure", **template["spec"]}


async def make_pod(scheduler: Scheduler, name: str, of: Json, spec: Mapping[str, Any], phase: str = "") -> None:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": of["metadata"]["name"], "controller": True}
    metadata = {
        "name": name,
        "namespace": "default",
        "ownerReferences": [{**owner, "uid": of["metadata"]["uid"]}],
    }
    await scheduler.stage.world.client.create(PODS, {"metadata": metadata, "spec": spec})
    if phase:
        await scheduler.stage.plays(name, phase)
    pods = scheduler.seen.pods.objects
    await scheduler.until(
        lambda: Key("default", name) in pods and (not phase or pods[Key("default", name)].status.phase == phase)
    )


async def record(scheduler: Scheduler, name: str, tarragon: Json) -> None:
    patch = {"status": {"tarragon": tarragon}}
    await scheduler.stage.world.client.patch(TFJOBS, Key("default", name), patch, subresource="status")
    await scheduler.until(lambda: "tarragon" in (scheduler.jobs[Key("default", name)].status or {}))


def admission(workers: str, kind: str = "Worker", size: int = 1) -> Json:
    return {"queued": LONG_AGO, "admitted": LONG_AGO, "size": {kind: size}, "nodes": {kind: {"n": workers}}}


async def adopted(scheduler: Scheduler, **tarragon: Any) -> None:
    """A job of 2018 with the pod that the operator of that time made: it drew the end of its name."""
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {
            "name": "old",
            "namespace": "default",
            "annotations": {GENERATION_ANNOTATION: "kubeflow.org/v1alpha1"},
        },
        "spec": {
            "RuntimeId": "zz9z",
            "replicaSpecs": [{"replicas": 1, "tfReplicaType": "MASTER", "template": {"spec": spec_of_pod("4")}}],
        },
    }
    await scheduler.stage.world.client.create(TFJOBS, body)
    await scheduler.until(lambda: Key("default", "old") in scheduler.jobs)
    await record(scheduler, "old", {"state": "Running", "admission": admission("0", "Master"), **tarragon})
    job = await scheduler.stage.world.client.get(TFJOBS, Key("default", "old"))
    owner = {"metadata": {"name": "old", "uid": job.metadata.uid}}
    await make_pod(scheduler, "old-master-zz9z-0-q7k2p", owner, {**spec_of_pod("4"), "nodeName": "n"}, "Running")


async def test_a_pod_that_was_taken_over_is_counted_once_whatever_its_name_ends_in(stage: Stage) -> None:
    await stage.node("n", cpu="8")
    async with a_scheduler(stage) as scheduler:
        await adopted(scheduler)
        await scheduler.submit("new", Worker=group(1, cpu="4"))
        await scheduler.admitter.run_cycle()
        await stage.world.until(lambda: bool(stage.admission("new")))
        assert scheduler.is_admitted("new"), stage.admission("new")


async def test_a_gang_that_was_taken_over_and_is_there_loses_no_places_for_being_refused_once(stage: Stage) -> None:
    await stage.node("n", cpu="8")
    async with a_scheduler(stage) as scheduler:
        await adopted(scheduler, obstacle={"since": LONG_AGO, "reason": "Refused", "message": "exceeded quota"})
        await scheduler.admitter.run_cycle()
        assert scheduler.network.patched == []


async def test_a_round_that_finds_what_a_job_holds_sells_none_of_it(stage: Stage) -> None:
    """Its record was lost while kube-scheduler had not bound its pods yet: they hold nothing, and it has no places."""
    await stage.node("n", cpu="8")
    async with a_scheduler(stage) as scheduler:
        await scheduler.submit("a", Worker=group(2, cpu="4"))
        job = stage.job("a")
        await make_pod(scheduler, "a-worker-0", job, {**spec_of_pod("4"), "nodeName": "n"}, "Running")
        await make_pod(scheduler, "a-worker-1", job, with_node_affinity(spec_of_pod("4"), "n"))
        await scheduler.submit("b", Worker=group(1, cpu="4"))
        await scheduler.admitter.run_cycle()
        await stage.world.until(lambda: bool(stage.admission("a") and stage.admission("b")))
        assert stage.admission("a")["nodes"] == {"Worker": {"n": "0-1"}}
        assert stage.admission("b")["wait"]["code"] == "InsufficientResources"


async def test_what_a_round_finds_that_a_job_holds_is_taken_off_once(stage: Stage) -> None:
    await stage.node("n", cpu="8")
    async with a_scheduler(stage) as scheduler:
        await scheduler.submit("a", Worker=group(1, cpu="4"))
        await make_pod(scheduler, "a-worker-0", stage.job("a"), {**spec_of_pod("4"), "nodeName": "n"}, "Running")
        await scheduler.submit("b", Worker=group(1, cpu="4"))
        await scheduler.admitter.run_cycle()
        await stage.world.until(lambda: bool(stage.admission("a") and stage.admission("b")))
        assert scheduler.is_admitted("b"), stage.admission("b")


async def test_a_place_that_kube_scheduler_is_to_find_is_sold_to_nobody_once_it_is_known(stage: Stage) -> None:
    await stage.node("n", cpu="8")
    async with a_scheduler(stage) as scheduler:
        await scheduler.submit("a", Worker=group(2, cpu="4"))
        nodes = {"Worker": {"n": "0", "": "1"}}
        await record(scheduler, "a", {"state": "Running", "admission": {**admission("0", size=2), "nodes": nodes}})
        job = stage.job("a")
        await make_pod(scheduler, "a-worker-1", job, with_node_affinity(spec_of_pod("4"), "n"))
        await scheduler.submit("b", Worker=group(1, cpu="4"))
        await scheduler.admitter.run_cycle()
        await stage.world.until(lambda: bool(stage.admission("b")))
        assert stage.admission("b")["wait"]["code"] == "InsufficientResources"
        assert stage.admission("a")["nodes"] == {"Worker": {"n": "0-1"}}


async def slipped(stage: Stage, scheduler: Scheduler, **elastic: Any) -> None:
    """It has both workers on record, and one pod that runs; then its user empties the list of containers."""
    await scheduler.submit("a", Worker=group(2, policy="OnFailure", cpu="4"), **elastic)
    accepted: Json = {"replicas": {"Worker": {"wish": 2, "policy": "OnFailure"}}, "cleanPods": "Running"}
    if elastic:
        accepted["elastic"] = [elastic["min-instances"], elastic["max-instances"]]
    status = {"state": "Running", "admission": admission("0-1", size=2), "accepted": accepted}
    await record(scheduler, "a", status)
    await make_pod(scheduler, "a-worker-0", stage.job("a"), {**spec_of_pod("4"), "nodeName": "n"}, "Running")


async def edit(stage: Stage, scheduler: Scheduler, worker: Json) -> None:
    before = scheduler.jobs[Key("default", "a")].metadata.resource_version
    patch = {"spec": {"tfReplicaSpecs": {"Worker": worker}}}
    await stage.world.client.patch(TFJOBS, Key("default", "a"), patch)
    await scheduler.until(lambda: scheduler.jobs[Key("default", "a")].metadata.resource_version != before)


NO_CONTAINERS: Json = {"template": {"spec": {"containers": []}}}


@pytest.mark.parametrize("its_pods", ["are there", "were there"])
async def test_a_job_keeps_its_places_while_an_edit_of_it_makes_no_sense(stage: Stage, its_pods: str) -> None:
    await stage.node("n", cpu="8")
    async with a_scheduler(stage) as scheduler:
        await slipped(stage, scheduler)
        if its_pods == "were there":
            await scheduler.admitter.run_cycle()
            await stage.world.delete(PODS, "a-worker-0")
            await stage.end_pods()
            await scheduler.until(lambda: not scheduler.seen.pods.objects)
        await edit(stage, scheduler, NO_CONTAINERS)
        await scheduler.submit("b", Worker=group(1, cpu="4"))
        await scheduler.admitter.run_cycle()
        await stage.world.until(lambda: bool(stage.admission("b")))
        assert not scheduler.is_admitted("b")
        assert scheduler.network.patched == ["b"]

        await edit(stage, scheduler, group(1, cpu="4"))
        await scheduler.admitter.run_cycle()  # It gives back a place,
        await scheduler.admitter.run_cycle()  # and that is sold.
        await stage.world.until(lambda: scheduler.is_admitted("b"))
        assert stage.admission("a")["nodes"] == {"Worker": {"n": "0"}}


async def test_a_job_does_not_grow_while_an_edit_of_it_makes_no_sense(stage: Stage) -> None:
    await stage.node("n", cpu="80")
    async with a_scheduler(stage) as scheduler:
        await slipped(stage, scheduler, **{"min-instances": 1, "max-instances": 4})
        await edit(stage, scheduler, {"replicas": 4, **NO_CONTAINERS})
        await scheduler.admitter.run_cycle()
        assert scheduler.network.patched == []


async def test_a_job_that_is_to_be_left_to_others_is_not_while_an_edit_of_it_makes_no_sense(stage: Stage) -> None:
    await stage.node("n", cpu="8")
    async with a_scheduler(stage) as scheduler:
        await slipped(stage, scheduler, **{"min-instances": 1, "max-instances": 4})
        await record(scheduler, "a", {"accepted": {"replicas": {"Worker": {"wish": 4}}}})
        await edit(stage, scheduler, NO_CONTAINERS)
        scheduler.seen.settings = OperatorSettings(namespaces=("default",))
        await scheduler.admitter.run_cycle()
        assert scheduler.network.patched == []


async def test_a_job_whose_node_went_while_an_edit_of_it_made_no_sense_is_housed_once_it_is_mended(
    stage: Stage,
) -> None:
    await stage.node("n", cpu="8")
    async with a_scheduler(stage) as scheduler:
        await slipped(stage, scheduler)
        await edit(stage, scheduler, NO_CONTAINERS)
        await stage.node("m", cpu="8")
        await stage.world.delete(NODES, "n", namespace="")
        await scheduler.until(lambda: [key.name for key, node in scheduler.nodes.items() if node.is_ready] == ["m"])
        await scheduler.admitter.run_cycle()
        assert scheduler.network.patched == []

        await edit(stage, scheduler, group(2, cpu="4"))
        await scheduler.admitter.run_cycle()
        await stage.world.until(lambda: stage.admission("a")["nodes"] == {"Worker": {"m": "0-1"}})


async def test_a_job_that_is_suspended_by_an_edit_that_makes_no_sense_reserves_nothing(stage: Stage) -> None:
    await stage.node("n", cpu="8")
    async with a_scheduler(stage) as scheduler:
        await slipped(stage, scheduler)
        await stage.world.client.patch(TFJOBS, Key("default", "a"), {"spec": {"runPolicy": {"suspend": True}}})
        await edit(stage, scheduler, NO_CONTAINERS)
        await scheduler.submit("b", Worker=group(1, cpu="4"))
        await scheduler.admitter.run_cycle()
        await stage.world.until(lambda: scheduler.is_admitted("b"))
