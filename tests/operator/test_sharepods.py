"""SharePods on the embedded API: the operator reads their pods whole, and leaves them to a KubeShare that runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarragon.client.errors import Forbidden
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import DeleteOptions
from tarragon.frameworks.sharepod.framework import SHAREPOD
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, PODS
from tarragon.kube.meta import Key, Resource
from tarragon.operator.coexistence.detection import ClusterState, detect_operators, operators_by_kind
from tarragon.operator.coexistence.listing import list_operators
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tests.frameworks.test_sharepod import CUDA, sharepod
from tests.operator.stage import Stage

Json = dict[str, Any]
KEY = Key("default", "shp")


async def prepared(stage: Stage) -> None:
    await stage.node("n")
    await stage.world.client.create(CUSTOM_RESOURCE_DEFINITIONS, SHAREPOD.crd())
    await stage.world.follow(SHAREPOD.resource)


async def submit(stage: Stage, body: Json) -> None:
    metadata = {**body["metadata"], "namespace": "default"}
    await stage.world.client.create(SHAREPOD.resource, {**body, "metadata": metadata})


def status(stage: Stage) -> Json:
    found: Json = stage.world.objects["sharepods/default/shp"].get("status") or {}
    return found


def state(stage: Stage) -> str:
    return str(status(stage).get("tarragon", {}).get("state", ""))


async def plays(stage: Stage, phase: str, state: Json) -> None:
    container = {"name": "cuda", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": state}
    played = {"phase": phase, "podIP": "10.1.2.3", "hostIP": "10.0.0.1", "containerStatuses": [container]}
    await stage.world.client.patch(PODS, KEY, {"status": played}, subresource="status")


async def test_it_runs_from_its_creation_to_its_deletion_with_the_status_of_its_pod(stage: Stage) -> None:
    await prepared(stage)
    stage.start_operator()
    await submit(stage, sharepod(restartPolicy="Never", metadata={"labels": {"app": "x"}}))
    await stage.until_pods("shp")
    await plays(stage, "Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}})
    await stage.world.until(lambda: status(stage).get("PodStatus", {}).get("phase") == "Running")

    mirrored, pod = status(stage), stage.pods()["shp"]
    assert mirrored["PodStatus"] == pod["status"]
    assert mirrored["PodObjectMeta"]["uid"] == pod["metadata"]["uid"]
    assert mirrored["PodObjectMeta"]["labels"]["app"] == "x"
    assert pod["spec"]["nodeName"] == "n"

    await plays(stage, "Succeeded", {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:09Z"}})
    await stage.world.until(lambda: state(stage) == "Succeeded")
    await stage.world.until(lambda: status(stage)["PodStatus"]["phase"] == "Succeeded")
    assert stage.made() == ["shp"]


async def test_a_pod_that_a_user_deletes_is_made_again_and_mirrored(stage: Stage) -> None:
    await prepared(stage)
    stage.start_operator()
    await submit(stage, sharepod())
    await stage.until_pods("shp")
    first = stage.pods()["shp"]["metadata"]["uid"]
    await stage.world.client.delete(PODS, KEY, DeleteOptions(grace_period_seconds=0))

    await stage.world.until(lambda: status(stage).get("PodObjectMeta", {}).get("uid") not in {None, first})
    assert status(stage)["PodObjectMeta"]["uid"] == stage.pods()["shp"]["metadata"]["uid"]


async def test_it_goes_to_the_node_that_it_names(stage: Stage) -> None:
    await prepared(stage)
    for name in ("m", "o"):
        await stage.node(name)
    stage.start_operator()
    await submit(stage, sharepod(nodeName="o"))
    await stage.until_pods("shp")

    assert stage.pods()["shp"]["spec"]["nodeName"] == "o"


async def test_it_waits_for_a_node_that_does_not_exist(stage: Stage) -> None:
    await prepared(stage)
    stage.start_operator()
    await submit(stage, sharepod(nodeName="elsewhere"))
    await stage.world.until(lambda: state(stage) == "Waiting" and "reason" in status(stage)["tarragon"])

    assert status(stage)["tarragon"]["reason"] == "NeverFits"
    assert stage.pods() == {}
    await stage.node("elsewhere")
    await stage.until_pods("shp")


async def test_its_pod_takes_capacity_from_all_others_until_it_has_ended(stage: Stage) -> None:
    await prepared(stage)
    stage.start_operator()
    large = {**CUDA, "resources": {"requests": {"cpu": "6"}}}
    await submit(stage, sharepod(large, restartPolicy="OnFailure"))
    await stage.until_pods("shp")
    await submit(stage, sharepod(large, name="second"))
    await stage.world.until(lambda: "sharepods/default/second" in stage.world.objects)
    await plays(stage, "Succeeded", {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:09Z"}})

    await stage.until_pods("shp", "second")
    assert stage.made() == ["shp", "second"]


class WithoutGet(DelegatingClient):
    """The stage's API, as it is for an operator that may not read a single pod."""

    async def get(self, resource: Resource[Any], key: Key) -> Any:
        if resource.full_name == "pods":
            raise Forbidden({"code": 403, "reason": "Forbidden", "message": "pods is forbidden"})
        return await super().get(resource, key)


async def test_an_operator_that_may_not_read_single_pods_runs_it_without_the_mirror(stage: Stage) -> None:
    await prepared(stage)
    stage.start(Operator(WithoutGet(stage.world.client), stage.world.clock, OperatorOptions(seed=1)).run())
    await submit(stage, sharepod())
    await stage.until_pods("shp")
    await plays(stage, "Running", {"running": {}})
    await stage.world.until(lambda: state(stage) == "Running")

    assert status(stage).keys() == {"BoundDeviceID", "PodManagerPort", "conditions", "tarragon"}


async def kubeshare(stage: Stage, name: str) -> Mapping[str, str]:
    """What is detected where KubeShare 1 runs as a pod of this name."""
    key = Key("kube-system", name)
    container = {"name": name, "image": f"ncy9371/{name}:20200429135835"}
    metadata = {"name": key.name, "namespace": key.namespace}
    await stage.world.client.create(PODS, {"metadata": metadata, "spec": {"containers": [container]}})
    await stage.world.client.patch(PODS, key, {"status": {"phase": "Running"}}, subresource="status")
    found = await list_operators(stage.world.client)
    return operators_by_kind(detect_operators(found, ClusterState(), stage.world.clock.now()))


async def test_sharepods_are_left_to_a_kubeshare_whose_device_manager_runs(stage: Stage) -> None:
    detected = await kubeshare(stage, "kubeshare-device-manager")

    assert detected == {"SharePod": "KubeShare (Pod kube-system/kubeshare-device-manager)"}


async def test_the_scheduler_alone_is_that_of_kubeshare_2_which_has_no_sharepods(stage: Stage) -> None:
    assert await kubeshare(stage, "kubeshare-scheduler") == {}


async def test_without_its_definition_the_operator_does_all_else(stage: Stage) -> None:
    stage.start_operator()
    await stage.node("n")
    await stage.submit("a", Worker={"template": {"spec": {"containers": [{**CUDA, "name": "tensorflow"}]}}})

    await stage.until_pods("a-worker-0")
