"""Jobs that another operator began, taken over with what they run on."""

from __future__ import annotations

from tarragon.client.port import DeleteOptions
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, PODS, SERVICES
from tarragon.kube.meta import Key
from tests import trainingoperator
from tests.operator.stage import TFJOBS, Json, Stage, group
from tests.operator.test_operator import FOREIGN_STATUS

ADOPT = {"metadata": {"annotations": {"tarragon.dev/adopt": "true"}}}


async def begun(stage: Stage, name: str, *, without: str = "", **groups: Json) -> Json:
    """It runs on node `n`, as training-operator has it; but for the pod `without`."""
    await stage.submit(name, **groups)
    await stage.world.there(f"tfjobs/default/{name}")
    job = stage.job(name)
    for pod, service in trainingoperator.objects(job):
        await stage.world.client.create(SERVICES, service)
        if pod["metadata"]["name"] != without:
            pod["spec"]["nodeName"] = "n"
            await stage.world.client.create(PODS, pod)
            await stage.plays(pod["metadata"]["name"], "Running")
    status = {"status": trainingoperator.status(job)}
    await stage.world.client.patch(TFJOBS, Key("default", name), status, subresource="status")
    return {pod: found["metadata"]["uid"] for pod, found in stage.pods().items()}


async def adopt(stage: Stage, name: str) -> None:
    await stage.world.client.patch(TFJOBS, Key("default", name), ADOPT)


def uids(stage: Stage) -> Json:
    return {pod: found["metadata"]["uid"] for pod, found in stage.pods().items()}


async def test_a_job_that_another_operator_began_is_taken_over_when_asked_and_no_pod_is_made_or_ended(
    stage: Stage,
) -> None:
    await stage.node("n")
    before = await begun(stage, "a", PS=group(1), Worker=group(2))
    services = dict(stage.services())
    stage.start_operator()
    await stage.world.until(lambda: bool(stage.events("LeftToOtherOperator")))
    assert stage.job("a")["status"] == trainingoperator.status(stage.job("a"))

    await adopt(stage, "a")
    await stage.until_state("a", "Running")
    assert stage.admission("a")["nodes"] == {"PS": {"n": "0"}, "Worker": {"n": "0-1"}}
    await stage.plays("a-worker-0", "Succeeded", 0)
    await stage.until_state("a", "Succeeded")

    assert uids(stage) == before
    assert len(stage.made()) == len(before)
    assert not [what for what in stage.world.deleted() if what.startswith("pods/")]
    assert stage.job("a")["status"]["startTime"] == trainingoperator.BEGAN
    assert {name: found["spec"] for name, found in services.items()}.keys() == {"a-ps-0", "a-worker-0", "a-worker-1"}


async def test_what_was_taken_over_holds_its_places_against_all_others(stage: Stage) -> None:
    await stage.node("n", cpu="4")
    before = await begun(stage, "a", PS=group(1, cpu="1"), Worker=group(2, cpu="1"))
    stage.start_operator()
    await adopt(stage, "a")
    await stage.until_state("a", "Running")

    await stage.submit("b", Worker=group(2, cpu="1"))
    await stage.world.until(lambda: stage.admission("b").get("wait", {}).get("code") == "InsufficientResources")
    assert uids(stage) == before


async def test_what_is_missing_of_it_is_made_when_there_is_room_and_the_rest_trains_meanwhile(stage: Stage) -> None:
    await stage.node("n", cpu="3")
    before = await begun(stage, "a", without="a-worker-1", PS=group(1, cpu="1"), Worker=group(2, cpu="1"))
    other = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}], "nodeName": "n"}
    body = {"metadata": {"name": "other", "namespace": "default"}, "spec": other}
    await stage.world.client.create(PODS, body)
    stage.start_operator()
    await adopt(stage, "a")
    await stage.until_state("a", "Running")
    admission = {"PS": {"n": "0"}, "Worker": {"": "1", "n": "0"}}
    await stage.world.until(lambda: stage.admission("a").get("nodes") == admission)
    assert before.items() <= uids(stage).items()

    await stage.world.client.delete(PODS, Key("default", "other"), DeleteOptions(grace_period_seconds=0))
    await stage.world.until(lambda: "a-worker-1" in stage.pods())
    assert stage.pods()["a-worker-1"]["spec"]["nodeName"] == "n"
    assert before.items() <= uids(stage).items()
    labels = stage.pods()["a-worker-1"]["metadata"]["labels"]
    assert stage.services()["a-worker-1"]["spec"]["selector"].items() <= labels.items()


async def test_jobs_whose_record_was_dropped_by_a_foreign_definition_get_it_back_from_their_pods(stage: Stage) -> None:
    await stage.node("n", cpu="2")
    operator = stage.operator()
    await stage.submit("a", PS=group(1, cpu="1"), Worker=group(1, cpu="1"))
    await stage.until_pods("a-ps-0", "a-worker-0")
    await stage.all_run("a-ps-0", "a-worker-0")
    await stage.until_state("a", "Running")
    before = uids(stage)

    await define(stage, FOREIGN_STATUS)
    await stage.world.client.patch(TFJOBS, Key("default", "a"), {"status": {"x": "y"}}, subresource="status")
    await stage.world.until(lambda: bool(stage.events("StatusNotKept")))
    await stage.kill(operator)
    await define(stage, None)
    stage.start_operator()
    await stage.until_state("a", "Running")

    assert uids(stage) == before
    assert stage.admission("a")["nodes"] == {"PS": {"n": "0"}, "Worker": {"n": "0"}}
    assert len(stage.made()) == 2


async def test_a_job_whose_pods_batch_jobs_make_gets_none_of_ours_beside_them(stage: Stage) -> None:
    await stage.node("n")
    pod_spec = {"restartPolicy": "OnFailure", "containers": [{"name": "tensorflow", "image": "i"}]}
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "a", "namespace": "default", **ADOPT["metadata"]},
        "spec": {"RuntimeId": "zz9z", "replicaSpecs": [{"template": {"spec": pod_spec}}]},
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "a-master-zz9z-0", "uid": "u1", "controller": True}
    metadata = {"name": "a-master-zz9z-0-q7k2p", "namespace": "default", "ownerReferences": [owner]}
    await stage.world.client.create(PODS, {"metadata": metadata, "spec": {**pod_spec, "nodeName": "n"}})
    await stage.plays("a-master-zz9z-0-q7k2p", "Running")
    await stage.world.client.create(TFJOBS, body)
    status = {"status": {"phase": "Running", "state": "Running"}}
    await stage.world.client.patch(TFJOBS, Key("default", "a"), status, subresource="status")
    stage.start_operator()
    await stage.world.until(lambda: bool(stage.events("LeftToOtherOperator")))

    assert stage.job("a")["status"] == status["status"]
    assert set(stage.pods()) == {"a-master-zz9z-0-q7k2p"}


async def define(stage: Stage, foreign_status: Json | None) -> None:
    """Our kind, or as another operator has it: without a place for our part of the status."""
    definition = TENSORFLOW.crd()
    for version in definition["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        if foreign_status is not None:
            del schema["x-kubernetes-preserve-unknown-fields"]
            schema["properties"]["status"] = foreign_status
    key = Key("", definition["metadata"]["name"])
    patch = {"spec": {"versions": definition["spec"]["versions"]}}
    await stage.world.client.patch(CUSTOM_RESOURCE_DEFINITIONS, key, patch)
