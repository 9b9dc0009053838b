"""The hollow kubelet of nodes on which pods hold whole GPUs for those that share them."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.localcluster.kubelet.builders import container_json
from tests.localcluster.kubelet.gpu_pods import GI, shared_metadata
from tests.localcluster.kubelet.test_hollow import HollowWorld
from tests.localcluster.kubelet.test_hollow import hollow as hollow  # noqa: PLC0414 - a fixture

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
UUID = "tarragon.dev/gpu-uuid"
WHOLE = container_json(resources={"limits": {GPU: 1}})
SETTINGS: Json = {
    "capacity": {"pods": 10**9, GPU: 2000},
    "labels": {"tarragon.dev/gpu-sharing": "anchor", "nvidia.com/gpu.memory": "16384"},
}


@pytest.fixture
async def node(hollow: HollowWorld) -> HollowWorld:
    await hollow.begin(**SETTINGS)
    return hollow


async def hold(node: HollowWorld, name: str, vgpu: int) -> str:
    """Create an anchor, and return its GPU."""
    metadata = {"labels": {"tarragon.dev/gpu-anchor": "true"}, "annotations": {"tarragon.dev/vgpu": str(vgpu)}}
    await node.create(name, WHOLE, metadata=metadata)
    return str((await node.phase("Running", name))["metadata"]["annotations"][UUID])


async def share(node: HollowWorld, name: str, request: float, *, gpu: str, vgpu: int = 0, **options: Any) -> None:
    metadata = shared_metadata(request, vgpu=vgpu, **options)
    metadata["annotations"][UUID] = gpu
    await node.create(name, metadata=metadata)


async def refused(node: HollowWorld, name: str) -> str:
    status = (await node.phase("Failed", name))["status"]
    assert status["reason"] == f"OutOf{GPU}"
    return str(status["message"])


async def test_anchors_hold_different_gpus_and_no_more_than_there_are(node: HollowWorld) -> None:
    first, second = await hold(node, "a", 0), await hold(node, "b", 1)
    await node.create("whole", WHOLE)

    assert first.startswith("GPU-")
    assert first != second
    await refused(node, "whole")


async def test_pods_share_the_gpu_of_an_anchor_until_it_is_full(node: HollowWorld) -> None:
    gpu = await hold(node, "a", 0)
    for name, request in (("one", 0.5), ("two", 0.3)):
        await share(node, name, request, gpu=gpu)
        await node.phase("Running", name)
    await share(node, "three", 0.3, gpu=gpu)
    await share(node, "four", 0.1, gpu=gpu, memory=4 * GI)
    await node.create("whole", WHOLE)

    assert (await refused(node, "three")).endswith("does not have enough left, requested: 0.3, used: 0.8, capacity: 1")
    assert "does not have enough memory left" in await refused(node, "four")
    await node.phase("Running", "whole")


async def test_a_share_of_a_gpu_that_no_anchor_holds_is_refused(node: HollowWorld) -> None:
    gpu = await hold(node, "a", 0)
    with capture_logs() as lines:
        await share(node, "other", 0.1, gpu="GPU-1")
        await share(node, "number", 0.1, gpu=gpu, vgpu=1)
        await node.create("nameless", metadata=shared_metadata(0.1, vgpu=0))
        words = [await refused(node, name) for name in ("other", "number", "nameless")]

    assert words == [
        "Pod was rejected: no anchor holds the GPU GPU-1 of vGPU 0",
        f"Pod was rejected: no anchor holds the GPU {gpu} of vGPU 1",
        "Pod was rejected: no anchor holds the GPU  of vGPU 0",
    ]
    assert [line["log_level"] for line in lines if line["event"] == "a share of a GPU is refused"] == ["error"] * 3


async def test_an_anchor_that_ends_before_those_that_share_its_gpu_is_noticed(node: HollowWorld) -> None:
    gpu = await hold(node, "a", 0)
    await share(node, "one", 0.5, gpu=gpu)
    await node.phase("Running", "one")
    with capture_logs() as lines:
        await node.delete("a")
        await node.vanished("a")
        await share(node, "two", 0.1, gpu=gpu)
        await refused(node, "two")

    assert "an anchor has gone while pods share its GPU" in [line["event"] for line in lines]


async def test_another_hollow_kubelet_knows_which_gpu_an_anchor_has(hollow: HollowWorld) -> None:
    await hollow.begin(**SETTINGS)
    first, second = await hold(hollow, "a", 0), await hold(hollow, "b", 1)
    await share(hollow, "one", 0.5, gpu=second, vgpu=1)
    await hollow.phase("Running", "one")
    await hollow.delete("a")
    await hollow.vanished("a")
    await hollow.end()
    await hollow.begin(**SETTINGS)
    await share(hollow, "two", 0.5, gpu=second, vgpu=1)
    await hollow.phase("Running", "two")
    await share(hollow, "three", 0.5, gpu=second, vgpu=1)

    await refused(hollow, "three")
    assert await hold(hollow, "c", 0) == first


async def test_without_the_label_the_kubelet_says_that_it_shares_gpus_itself(hollow: HollowWorld) -> None:
    await hollow.begin()

    assert (await hollow.node_object())["metadata"]["labels"]["tarragon.dev/gpu-sharing"] == "kubelet"
