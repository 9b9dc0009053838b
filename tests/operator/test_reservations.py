"""What is promised to a job and not yet held by a pod is nobody else's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tarragon.plan.placement import by_affinity
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
        await scheduler.admitter.round()
        await stage.world.until(lambda: bool(stage.admission("new")))
        assert scheduler.is_admitted("new"), stage.admission("new")


async def test_a_gang_that_was_taken_over_and_is_there_loses_no_places_for_being_refused_once(stage: Stage) -> None:
    await stage.node("n", cpu="8")
    async with a_scheduler(stage) as scheduler:
        await adopted(scheduler, obstacle={"since": LONG_AGO, "reason": "Refused", "message": "exceeded quota"})
        await scheduler.admitter.round()
        assert scheduler.network.patched == []


async def test_a_round_that_finds_what_a_job_holds_sells_none_of_it(stage: Stage) -> None:
    """Its record was lost while kube-scheduler had not bound its pods yet: they hold nothing, and it has no places."""
    await stage.node("n", cpu="8")
    async with a_scheduler(stage) as scheduler:
        await scheduler.submit("a", Worker=group(2, cpu="4"))
        job = stage.job("a")
        await make_pod(scheduler, "a-worker-0", job, {**spec_of_pod("4"), "nodeName": "n"}, "Running")
        await make_pod(scheduler, "a-worker-1", job, by_affinity(spec_of_pod("4"), "n"))
        await scheduler.submit("b", Worker=group(1, cpu="4"))
        await scheduler.admitter.round()
        await stage.world.until(lambda: bool(stage.admission("a") and stage.admission("b")))
        assert stage.admission("a")["nodes"] == {"Worker": {"n": "0-1"}}
        assert stage.admission("b")["wait"]["code"] == "InsufficientResources"


async def test_what_a_round_finds_that_a_job_holds_is_taken_off_once(stage: Stage) -> None:
    await stage.node("n", cpu="8")
    async with a_scheduler(stage) as scheduler:
        await scheduler.submit("a", Worker=group(1, cpu="4"))
        await make_pod(scheduler, "a-worker-0", stage.job("a"), {**spec_of_pod("4"), "nodeName": "n"}, "Running")
        await scheduler.submit("b", Worker=group(1, cpu="4"))
        await scheduler.admitter.round()
        await stage.world.until(lambda: bool(stage.admission("a") and stage.admission("b")))
        assert scheduler.is_admitted("b"), stage.admission("b")


async def test_a_place_that_kube_scheduler_is_to_find_is_sold_to_nobody_once_it_is_known(stage: Stage) -> None:
    await stage.node("n", cpu="8")
    async with a_scheduler(stage) as scheduler:
        await scheduler.submit("a", Worker=group(2, cpu="4"))
        nodes = {"Worker": {"n": "0", "": "1"}}
        await record(scheduler, "a", {"state": "Running", "admission": {**admission("0", size=2), "nodes": nodes}})
        job = stage.job("a")
        await make_pod(scheduler, "a-worker-1", job, by_affinity(spec_of_pod("4"), "n"))
        await scheduler.submit("b", Worker=group(1, cpu="4"))
        await scheduler.admitter.round()
        await stage.world.until(lambda: bool(stage.admission("b")))
        assert stage.admission("b")["wait"]["code"] == "InsufficientResources"
        assert stage.admission("a")["nodes"] == {"Worker": {"n": "0-1"}}
