"""Jobs that another operator began, taken over with what they run on."""

from __future__ import annotations

from tarragon.client.port import DeleteOptions
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.core import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, PODS, SECRETS, SERVICES
from tarragon.kube.meta import Key
from tests import trainingoperator
from tests.frameworks.mpi_jobs import V2BETA1, mpijob
from tests.operator.mpi_stage import MPIJOBS, MpiStage
from tests.operator.stage import TFJOBS, Json, Stage, group
from tests.operator.test_operator import FOREIGN_STATUS

SUSPENDED_BY_MPI_OPERATOR = [
    {
        "type": kind,
        "status": is_true,
        "reason": "MPIJobSuspended",
        "message": "",
        "lastUpdateTime": "2026-11-20T08:00:00Z",
        "lastTransitionTime": "2026-11-20T08:00:00Z",
    }
    for kind, is_true in (("Created", "True"), ("Running", "False"), ("Suspended", "True"))
]
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


async def test_what_is_missing_of_a_job_that_claims_devices_is_left_to_kube_scheduler(stage: Stage) -> None:
    await stage.node("n")
    workers = group(2)
    workers["template"]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    before = await begun(stage, "a", without="a-worker-1", Worker=workers)
    stage.start_operator()
    await adopt(stage, "a")
    await stage.until_pods("a-worker-0", "a-worker-1")

    assert before.items() <= uids(stage).items()
    added = stage.pods()["a-worker-1"]["spec"]
    assert "nodeName" not in added
    assert "affinity" not in added
    assert stage.admission("a")["size"] == {"Worker": 2}
    assert "nodes" not in stage.admission("a")


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


async def test_an_mpijob_that_mpi_operator_suspended_is_resumed_with_its_keys(stage: Stage) -> None:
    """mpi-operator leaves the key pair, the host file, and a suspended batch Job, which the operator does not see."""
    mpi = MpiStage(stage)
    await mpi.install()
    manifest = mpijob(runPolicy={"suspend": True})
    metadata = {**manifest["metadata"], "namespace": "default", **ADOPT["metadata"]}
    found = await stage.world.client.create(MPIJOBS.with_model(dict), {**manifest, "metadata": metadata})
    owner = {"apiVersion": V2BETA1, "kind": "MPIJob", "name": "pi", "uid": found["metadata"]["uid"], "controller": True}
    owned = {"namespace": "default", "ownerReferences": [owner]}
    keys = {"ssh-privatekey": "YQ==", "ssh-publickey": "Yg=="}
    secret = {"metadata": {**owned, "name": "pi-ssh"}, "type": "kubernetes.io/ssh-auth", "data": keys}
    await stage.world.client.create(SECRETS.with_model(dict), secret)
    hosts = {
        "metadata": {**owned, "name": "pi-config"},
        "data": {"hostfile": "old", "discover_hosts.sh": "#!/bin/sh\n"},
    }
    await stage.world.client.create(CONFIG_MAPS.with_model(dict), hosts)
    status = {"status": {"conditions": SUSPENDED_BY_MPI_OPERATOR}}
    await stage.world.client.patch(MPIJOBS, Key("default", "pi"), status, subresource="status")
    stage.start_operator()
    await mpi.until_state("Suspended")

    await mpi.change(runPolicy={"suspend": False})
    await stage.until_pods("pi-launcher", "pi-worker-0", "pi-worker-1")

    assert stage.world.objects["secrets/default/pi-ssh"]["data"] == keys
    assert mpi.config["hostfile"].startswith("pi-worker-0.pi.default.svc slots=1")
    assert not stage.events("FailedCreateSecret")
