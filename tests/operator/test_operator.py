from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import pytest

from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import Client
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.operator.metrics.registry import Metrics
from tests.operator.stage import TFJOBS, Stage, group, job

GANG = ("a-ps-0", "a-worker-0", "a-worker-1")


async def test_a_job_gets_its_services_and_pods_and_succeeds_with_worker_0(stage: Stage) -> None:
    await stage.node("n")
    stage.start_operator()
    await stage.submit("a", PS=group(1), Worker=group(2), runPolicy={"cleanPodPolicy": "Running"})
    await stage.until_pods(*GANG)

    assert set(stage.services()) == set(GANG)
    worker = stage.pods()["a-worker-1"]["spec"]
    assert worker["nodeName"] == "n"
    (config,) = [entry["value"] for entry in worker["containers"][0]["env"] if entry["name"] == "TF_CONFIG"]
    assert json.loads(config)["task"] == {"type": "worker", "index": 1}

    await stage.all_run(*GANG)
    await stage.until_state("a", "Running")
    await stage.plays("a-worker-0", "Succeeded", 0)
    await stage.until_state("a", "Succeeded")
    await stage.world.until(lambda: not stage.services())
    await stage.world.until(lambda: all(stage.pods()[name]["metadata"].get("deletionTimestamp") for name in GANG[:1]))
    assert Counter(stage.made()) == Counter(GANG)
    reasons = [condition["reason"] for condition in stage.job("a")["status"]["conditions"]]
    assert reasons[-1] == "TFJobSucceeded"


async def test_a_gang_that_does_not_fit_waits_with_a_reason_and_starts_whole_when_there_is_room(stage: Stage) -> None:
    await stage.node("small", memory="4Gi")
    stage.start_operator()
    await stage.submit("first", Worker=group(1, memory="3Gi"))
    await stage.until_pods("first-worker-0")
    await stage.submit("a", Worker=group(2, memory="2Gi"))
    await stage.until_state("a", "Waiting")
    await stage.world.until(lambda: "wait" in stage.admission("a"))

    assert stage.admission("a")["wait"] == {
        "code": "InsufficientResources",
        "message": "the job needs 4Gi memory; free: 1Gi memory",
    }
    assert set(stage.pods()) == {"first-worker-0"}
    await stage.plays("first-worker-0", "Succeeded", 0)
    await stage.until_state("a", "Starting")
    await stage.world.until(lambda: {"a-worker-0", "a-worker-1"} <= set(stage.pods()))
    assert "wait" not in stage.admission("a")


async def test_a_job_that_can_never_fit_says_so_and_blocks_nobody(stage: Stage) -> None:
    await stage.node("n")
    stage.start_operator()
    await stage.submit("gpu", Worker=group(1, **{"nvidia.com_gpu": "1"}))
    await stage.world.until(lambda: stage.admission("gpu").get("wait", {}).get("code") == "NeverFits")
    await stage.submit("cpu", Worker=group(1, cpu="1"))
    await stage.until_pods("cpu-worker-0")


async def test_a_failed_replica_is_recorded_before_it_is_replaced_and_counted_once(stage: Stage) -> None:
    await stage.node("n")
    stage.start_operator()
    await stage.submit("a", Worker=group(2, policy="OnFailure"))
    await stage.until_pods("a-worker-0", "a-worker-1")
    await stage.all_run("a-worker-0", "a-worker-1")
    await stage.until_state("a", "Running")
    old = stage.pods()["a-worker-1"]["metadata"]["uid"]
    await stage.plays("a-worker-1", "Failed", 1, "no such file")
    await stage.world.until(
        lambda: "restarts" in stage.job("a")["status"]["tarragon"] and stage.state("a") == "Restarting"
    )
    await stage.end_pods()
    await stage.world.until(
        lambda: "a-worker-1" in stage.pods() and stage.pods()["a-worker-1"]["metadata"]["uid"] != old
    )
    await stage.all_run("a-worker-1")
    await stage.until_state("a", "Running")
    assert Counter(stage.made()) == {"a-worker-0": 1, "a-worker-1": 2}
    assert stage.job("a")["status"]["tarragon"]["restarts"]["total"] == 1


async def test_a_job_that_is_not_valid_fails_with_its_problems_and_stops_nobody(stage: Stage) -> None:
    await stage.node("n")
    stage.start_operator()
    await stage.submit("bad", Worker={"replicas": 1, "template": {"spec": {"containers": []}}})
    await stage.submit("good", Worker=group(1))
    await stage.until_pods("good-worker-0")
    await stage.until_state("bad", "Failed")
    await stage.world.until(lambda: bool(stage.events("TFJobFailedValidation")))
    (told,) = stage.events("TFJobFailedValidation")
    assert "spec.tfReplicaSpecs.Worker.template.spec.containers" in told


async def test_somebody_elses_pod_of_that_name_is_waited_for(stage: Stage) -> None:
    await stage.node("n")
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}
    await stage.world.create(PODS, "a-worker-0", spec=spec)
    stage.start_operator()
    await stage.submit("a", Worker=group(1))
    await stage.world.until(lambda: bool(stage.events("NameTaken")))
    message = "objects of other owners already use the names a-worker-0; the job waits until they are free"
    assert stage.events("NameTaken") == [message]
    assert "ownerReferences" not in stage.pods()["a-worker-0"]["metadata"]
    await stage.world.delete(PODS, "a-worker-0")
    await stage.end_pods()
    await stage.world.until(lambda: "ownerReferences" in stage.pods().get("a-worker-0", {}).get("metadata", {}))


async def test_a_wish_that_sinks_takes_the_highest_worker_away(stage: Stage) -> None:
    await stage.node("n")
    stage.start_operator()
    await stage.submit("a", Worker=group(3))
    names = ("a-worker-0", "a-worker-1", "a-worker-2")
    await stage.until_pods(*names)
    await stage.all_run(*names)
    await stage.until_state("a", "Running")
    fewer = {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 2}}}}
    await stage.world.client.patch(TFJOBS, Key("default", "a"), fewer)
    await stage.world.until(lambda: "deletionTimestamp" in stage.pods()["a-worker-2"]["metadata"])
    await stage.end_pods()
    await stage.until_pods("a-worker-0", "a-worker-1")
    assert stage.state("a") == "Running"


async def test_an_elastic_job_does_not_grow_into_the_room_of_its_own_finished_workers(stage: Stage) -> None:
    await stage.node("n", memory="4Gi")
    stage.start_operator()
    limits = {"min-instances": 1, "max-instances": 4}
    await stage.world.client.create(TFJOBS, job("a", Worker=group(4, memory="2Gi"), **limits))
    await stage.until_pods("a-worker-0", "a-worker-1")
    await stage.all_run("a-worker-0", "a-worker-1")
    await stage.plays("a-worker-1", "Succeeded", 0)
    await stage.world.until(lambda: "finished" in stage.job("a")["status"]["tarragon"])
    await stage.submit("b", Worker=group(1, memory="2Gi"))
    await stage.world.until(lambda: "b-worker-0" in stage.pods())
    assert stage.admission("a")["size"] == {"Worker": 2}
    assert set(stage.pods()) == {"a-worker-0", "a-worker-1", "b-worker-0"}


async def test_suspend_gives_everything_back_and_resume_starts_anew(stage: Stage) -> None:
    await stage.node("n", memory="4Gi")
    stage.start_operator()
    await stage.submit("a", Worker=group(1, memory="3Gi"))
    await stage.until_pods("a-worker-0")
    await stage.all_run("a-worker-0")
    await stage.until_state("a", "Running")
    await suspend(stage, "a", wanted=True)
    await stage.until_state("a", "Suspended")
    await stage.world.until(lambda: "deletionTimestamp" in stage.pods()["a-worker-0"]["metadata"])
    await stage.end_pods()
    await stage.submit("b", Worker=group(1, memory="3Gi"))
    await stage.until_pods("b-worker-0")
    await suspend(stage, "a", wanted=False)
    await stage.until_state("a", "Waiting")
    await stage.plays("b-worker-0", "Succeeded", 0)
    await stage.world.until(lambda: "a-worker-0" in stage.pods())


async def suspend(stage: Stage, name: str, *, wanted: bool) -> None:
    await stage.world.client.patch(TFJOBS, Key("default", name), {"spec": {"runPolicy": {"suspend": wanted}}})


@pytest.mark.parametrize("seed", range(3))
async def test_an_operator_that_dies_at_any_moment_makes_no_pod_twice_and_loses_none(stage: Stage, seed: int) -> None:
    moments = random.Random(seed)
    await stage.node("n")
    names = [f"j{number}-{kind}" for number in range(4) for kind in ("ps-0", "worker-0", "worker-1")]
    for number in range(4):
        await stage.submit(f"j{number}", PS=group(1), Worker=group(2))
    for _ in range(15):
        operator = stage.operator()
        for _ in range(moments.randrange(1, 400)):
            await asyncio.wait([operator], timeout=0)
        await stage.kill(operator)
    stage.start_operator()
    await stage.until_pods(*names)
    await stage.all_run(*names)
    for number in range(4):
        await stage.until_state(f"j{number}", "Running")
    assert Counter(stage.made()) == Counter(names)


async def test_two_operators_at_once_make_no_pod_twice(stage: Stage) -> None:
    await stage.node("n")
    stage.start_operator()
    stage.start_operator()
    for number in range(5):
        await stage.world.client.create(TFJOBS, job(f"j{number}", PS=group(1), Worker=group(2)))
    names = [f"j{number}-{kind}" for number in range(5) for kind in ("ps-0", "worker-0", "worker-1")]
    await stage.until_pods(*names)
    assert Counter(stage.made()) == Counter(names)


async def test_no_node_is_oversold_by_many_jobs_that_come_at_once(stage: Stage) -> None:
    await stage.node("n0", cpu="10")
    await stage.node("n1", cpu="10")
    stage.start_operator()
    names = [f"j{number}" for number in range(20)]
    for name in names:
        await stage.submit(name, Worker=group(2, cpu="3"))
    finished: set[str] = set()
    while len(finished) < len(names):
        # Six places for gangs of two: three run at a time, and the next ones come as these end.
        due = 2 * min(len(finished) + 3, len(names))
        await stage.world.until(partial(has_made, stage, due))
        places = Counter(pod["spec"]["nodeName"] for pod in stage.pods().values() if not has_ended(pod))
        assert all(used <= 3 for used in places.values())
        for name in sorted({pod.partition("-")[0] for pod, found in stage.pods().items() if not has_ended(found)}):
            await stage.plays(f"{name}-worker-1", "Succeeded", 0)
            await stage.plays(f"{name}-worker-0", "Succeeded", 0)
            await stage.until_state(name, "Succeeded")
            finished.add(name)


def has_made(stage: Stage, pods: int) -> bool:
    return len(stage.pods()) == pods


def has_ended(pod: Mapping[str, Any]) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Succeeded")


async def test_a_replica_whose_node_is_gone_starts_anew_on_another(stage: Stage) -> None:
    await stage.node("n0", cpu="2")
    stage.start_operator()
    await stage.submit("a", Worker=group(2, cpu="1"))
    names = ("a-worker-0", "a-worker-1")
    await stage.until_pods(*names)
    await stage.all_run(*names)
    await stage.until_state("a", "Running")
    await stage.world.delete(NODES, "n0")
    await stage.node("n1", cpu="2")
    await stage.world.until(lambda: all("deletionTimestamp" in pod["metadata"] for pod in stage.pods().values()))
    await stage.end_pods()
    await stage.world.until(lambda: [pod["spec"]["nodeName"] for pod in stage.pods().values()] == ["n1", "n1"])


async def test_a_job_that_loses_a_whole_type_between_two_tries_of_its_replica_stops_no_other_job(stage: Stage) -> None:
    await stage.node("n")
    operator = stage.operator()
    await stage.submit("a", PS=group(1), Worker=group(1))
    await stage.until_pods("a-ps-0", "a-worker-0")
    await stage.all_run("a-ps-0", "a-worker-0")
    await stage.until_state("a", "Running")
    await stage.kill(operator)
    await stage.plays("a-ps-0", "Failed", 1)
    await stage.world.client.patch(TFJOBS, Key("default", "a"), {"spec": {"tfReplicaSpecs": {"PS": None}}})

    await stage.submit("b", Worker=group(1))
    stage.start_operator()
    await stage.world.until(lambda: "b-worker-0" in stage.pods())
    await stage.world.until(lambda: stage.admission("a")["size"] == {"Worker": 1})


FOREIGN_STATUS = {
    "type": "object",
    "properties": {
        "conditions": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    },
}


async def test_a_definition_that_drops_our_part_of_the_status_ends_no_pod_and_is_told(stage: Stage) -> None:
    """As Kubeflow's does: who installs its operator beside ours replaces the definition of both."""
    await stage.node("n")
    stage.start_operator()
    await stage.submit("a", Worker=group(1))
    await stage.until_pods("a-worker-0")
    await stage.all_run("a-worker-0")
    await stage.until_state("a", "Running")
    before = stage.pods()["a-worker-0"]["metadata"]["uid"]

    definition = TENSORFLOW.crd()
    for version in definition["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        del schema["x-kubernetes-preserve-unknown-fields"]
        schema["properties"]["status"] = FOREIGN_STATUS
    key = Key("", definition["metadata"]["name"])
    await stage.world.client.patch(CUSTOM_RESOURCE_DEFINITIONS, key, {"spec": definition["spec"]})
    # A kube-apiserver drops it whatever is written to the job, the embedded one when it is the status.
    await stage.world.client.patch(TFJOBS, Key("default", "a"), {"status": {"x": "y"}}, subresource="status")
    await stage.world.until(lambda: bool(stage.events("StatusNotKept")))

    assert stage.job("a")["status"].get("tarragon") is None
    # Nothing in the status tells any more that the job is ours.
    assert stage.job("a")["metadata"]["annotations"]["tarragon.dev/generation"] == "kubeflow.org/v1"
    pod = stage.pods()["a-worker-0"]["metadata"]
    assert (pod["uid"], pod.get("deletionTimestamp")) == (before, None)
    (words,) = stage.events("StatusNotKept")
    assert words.endswith("until Tarragon's is installed again (`tarragon docs install#upgrade`)")


class LosesAWatch(DelegatingClient):
    """An API whose first watch of pods stays open and brings nothing."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.watches = 0

    def watch(self, resource: Any, selection: Any, since: str) -> Any:
        if resource.plural != "pods":
            return super().watch(resource, selection, since)
        self.watches += 1
        return _nothing() if self.watches == 1 else super().watch(resource, selection, since)


async def _nothing() -> AsyncIterator[Any]:
    await asyncio.Event().wait()
    yield


async def test_a_watch_that_is_lost_without_a_word_holds_up_no_job_for_long(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the pod was made, the server has said when it answered; what a kubelet says of it, only a watch brings."""
    monkeypatch.setattr("tarragon.client.informer.informer.DEAF_AFTER_SECONDS", 0.2)
    await stage.node("n")
    await stage.submit("a", Worker=group(1, cpu="1"))
    cluster = LosesAWatch(stage.world.client)
    metrics = Metrics(stage.world.clock, "1.2.3")
    stage.start(Operator(cluster, stage.world.clock, OperatorOptions(seed=1, meter=metrics)).run())

    await stage.until_pods("a-worker-0")
    await stage.all_run("a-worker-0")
    await stage.until_state("a", "Running")

    assert cluster.watches == 2
    assert stage.made() == ["a-worker-0"]
    lost = 'tarragon_watches_lost_total{reason="deaf",resource="pods"} 1.0'
    assert lost in metrics.render().decode()
