"""The operator reads from the logs of anchor pods which GPUs they hold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from tarragon.client.errors import Forbidden
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import DEFAULT_LOG, Client, DeleteOptions, LogOptions
from tarragon.kube.core import PODS
from tarragon.kube.meta import Json, Key, Resource
from tests.operator.anchor_stage import SYSTEM, anchors, blocked, gpu_of, make_namespace, shared, start_operator
from tests.operator.stage import Stage

GPU = "nvidia.com/gpu"
A = "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"
B = "MIG-5cf8db2d-06c0-7d70-1a51-e59b25b2c16c"
FIRST, SECOND = "tarragon-gpu-n-0", "tarragon-gpu-n-1"


class Printing(DelegatingClient):
    """The stage's API with the logs that its anchors would have; some requests may be forbidden."""

    def __init__(self, cluster: Client, logs: Mapping[str, str], *, forbidden: str = "") -> None:
        super().__init__(cluster)
        self.logs = dict(logs)
        self.reads: list[str] = []
        self.forbidden = forbidden

    async def pod_log(self, key: Key, options: LogOptions = DEFAULT_LOG) -> AsyncIterator[bytes]:
        self.reads.append(key.name)
        if self.forbidden == "pods/log":
            raise Forbidden({"code": 403, "reason": "Forbidden", "message": "pods/log is forbidden"})
        assert options.container == "gpu"
        yield self.logs.get(key.name, "").encode()

    async def create(self, resource: Resource[Any], body: Mapping[str, Json]) -> Any:
        if self.forbidden == "pods" and body["metadata"].get("namespace") == SYSTEM:
            raise Forbidden({"code": 403, "reason": "Forbidden", "message": "pods is forbidden"})
        return await super().create(resource, body)


async def prepare(stage: Stage, logs: Mapping[str, str], *, forbidden: str = "", **settings: Any) -> Printing:
    await make_namespace(stage)
    await stage.node("n", sharing="anchor", **{GPU: "2"})
    client = Printing(stage.world.client, logs, forbidden=forbidden)
    start_operator(stage, client, **settings)
    return client


async def play(stage: Stage, anchor: str, state: Json, phase: str = "Running", **status: str) -> None:
    """Say of an anchor what a kubelet would."""
    await stage.world.until(lambda: anchor in anchors(stage))
    containers = [{"name": "gpu", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": state}]
    body = {"status": {"phase": phase, "containerStatuses": containers, **status}}
    await stage.world.client.patch(PODS, Key(SYSTEM, anchor), body, subresource="status")


async def test_a_pod_is_created_when_the_gpu_is_known(stage: Stage) -> None:
    client = await prepare(stage, {FIRST: f"{A}\n"})
    await stage.submit("a", Worker=shared(1, "0.5"))
    await stage.world.until(lambda: FIRST in anchors(stage))
    assert client.reads == []

    await play(stage, FIRST, {"running": {}})
    await stage.until_pods("a-worker-0")
    assert gpu_of(anchors(stage)[FIRST]) == gpu_of(stage.pods()["a-worker-0"]) == A


async def test_a_part_of_a_gpu_counts_as_one(stage: Stage) -> None:
    await prepare(stage, {FIRST: f"some words\n{B}\n"})
    await stage.submit("a", Worker=shared(1, "0.5"))
    await play(stage, FIRST, {"running": {}})

    await stage.until_pods("a-worker-0")
    assert gpu_of(stage.pods()["a-worker-0"]) == B


async def test_a_log_that_names_no_gpu_is_quoted_and_read_again(stage: Stage) -> None:
    client = await prepare(stage, {FIRST: "nvidia-smi: not found"})
    await stage.submit("a", Worker=shared(1, "0.5"))
    await play(stage, FIRST, {"running": {}})
    await stage.world.until(lambda: bool(blocked(stage, "a")))
    assert blocked(stage, "a") == (
        f"GpuNotReady: worker-0 waits: vGPU 0 of node n has no GPU yet: anchor pod {SYSTEM}/{FIRST}: "
        "its log names no GPU: 'nvidia-smi: not found'"
    )

    client.logs[FIRST] = A
    await stage.until_pods("a-worker-0")
    await stage.world.until(lambda: not blocked(stage, "a"))


async def test_without_permission_to_read_the_log_the_job_says_so(stage: Stage) -> None:
    client = await prepare(stage, {FIRST: A}, forbidden="pods/log")
    await stage.submit("a", Worker=shared(1, "0.5"))
    await play(stage, FIRST, {"running": {}})
    await stage.world.until(lambda: bool(blocked(stage, "a")))
    assert blocked(stage, "a").endswith("its log can't be read: pods/log is forbidden")

    client.forbidden = ""
    await stage.until_pods("a-worker-0")


async def test_without_permission_to_create_anchors_the_job_says_so(stage: Stage) -> None:
    client = await prepare(stage, {FIRST: A}, forbidden="pods")
    await stage.submit("a", Worker=shared(1, "0.5"))
    await stage.world.until(lambda: bool(blocked(stage, "a")))
    assert blocked(stage, "a") == (
        f"GpuNotReady: worker-0 waits: vGPU 0 of node n has no GPU yet: anchor pod {SYSTEM}/{FIRST} "
        "can't be created: pods is forbidden"
    )

    client.forbidden = ""
    await play(stage, FIRST, {"running": {}})
    await stage.until_pods("a-worker-0")


async def test_an_image_that_can_not_be_pulled_is_named(stage: Stage) -> None:
    await prepare(stage, {FIRST: A})
    await stage.submit("a", Worker=shared(1, "0.5"))
    await play(stage, FIRST, {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}, "Pending")
    await stage.world.until(lambda: bool(blocked(stage, "a")))

    assert blocked(stage, "a") == (
        f"GpuNotReady: worker-0 waits: vGPU 0 of node n has no GPU yet: its anchor pod {SYSTEM}/{FIRST} does not run: "
        "ImagePullBackOff: no such image"
    )


async def test_of_two_anchors_with_one_gpu_the_later_one_is_wrong(stage: Stage) -> None:
    """Such is a device plugin that offers each GPU several times."""
    client = await prepare(stage, {FIRST: A, SECOND: A})
    await stage.submit("a", Worker=shared(2, "0.8"))
    with capture_logs() as lines:
        await play(stage, FIRST, {"running": {}})
        await stage.world.until(lambda: len(stage.pods()) == 1)
        await play(stage, SECOND, {"running": {}})
        await stage.world.until(lambda: bool(anchors(stage)[SECOND]["metadata"].get("deletionTimestamp")))
    assert [line["log_level"] for line in lines if line["event"] == "an anchor is of no use"] == ["warning"]
    await stage.world.until(lambda: bool(blocked(stage, "a")))
    assert blocked(stage, "a").endswith(
        f"vGPU 1 of node n has no GPU: its GPU {A} is that of the anchor pod {SYSTEM}/{FIRST}, too; "
        "does the node's device plugin offer each GPU several times?"
    )
    assert len(stage.pods()) == 1

    client.logs[SECOND] = B
    uid = anchors(stage)[SECOND]["metadata"]["uid"]
    await stage.world.client.delete(PODS, Key(SYSTEM, SECOND), DeleteOptions(grace_period_seconds=0, uid=uid))
    await stage.world.until(lambda: anchors(stage).get(SECOND, {"metadata": {"uid": uid}})["metadata"]["uid"] != uid)
    await play(stage, SECOND, {"running": {}})
    await stage.world.until(lambda: len(stage.pods()) == 2)
    assert {gpu_of(pod) for pod in stage.pods().values()} == {A, B}


async def test_a_gpu_that_was_lost_is_not_mixed_with_the_next_one(stage: Stage) -> None:
    client = await prepare(stage, {FIRST: A})
    await stage.submit("a", Worker=shared(1, "0.4"))
    await play(stage, FIRST, {"running": {}})
    await stage.until_pods("a-worker-0")
    await stage.plays("a-worker-0", "Running")

    client.logs[FIRST] = B
    await play(stage, FIRST, {"terminated": {"exitCode": 137}}, "Failed", reason="Evicted", message="low on memory")
    await stage.world.until(lambda: anchors(stage).get(FIRST, {}).get("status", {}).get("phase") == "Pending")
    await play(stage, FIRST, {"running": {}})
    await stage.world.until(lambda: gpu_of(anchors(stage)[FIRST]) == B)
    await stage.submit("b", Worker=shared(1, "0.4"))
    await stage.world.until(lambda: bool(blocked(stage, "b")))
    assert f"vGPU 0 of node n has lost its GPU {A}, which pods still use" in blocked(stage, "b")

    await stage.plays("a-worker-0", "Succeeded", 0)
    await stage.until_pods("a-worker-0", "b-worker-0")
    assert gpu_of(stage.pods()["b-worker-0"]) == B


@pytest.mark.parametrize("label", ["tarragon.dev/gpu-anchor"])
async def test_a_pod_of_a_user_with_the_label_is_no_anchor(stage: Stage, label: str) -> None:
    await prepare(stage, {FIRST: A})
    metadata = {
        "name": "mine",
        "namespace": "default",
        "labels": {label: "true"},
        "annotations": {"tarragon.dev/vgpu": "0", "tarragon.dev/gpu-uuid": B},
    }
    container = {"name": "gpu", "image": "i", "resources": {"limits": {GPU: "2"}, "requests": {GPU: "2"}}}
    body = {"metadata": metadata, "spec": {"nodeName": "n", "containers": [container]}}
    await stage.world.client.create(PODS.with_model(dict), body)
    await stage.submit("a", Worker=shared(1, "0.5"))
    await stage.world.until(lambda: "wait" in stage.admission("a"))

    await stage.world.client.delete(PODS, Key("default", "mine"), DeleteOptions(grace_period_seconds=0))
    await play(stage, FIRST, {"running": {}})
    await stage.until_pods("a-worker-0")
    assert gpu_of(stage.pods()["a-worker-0"]) == A
