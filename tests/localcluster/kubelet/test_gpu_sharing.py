"""Pods that share a GPU on a node with the kubelet, the in-process API and real processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from tarragon.client.port import Selector
from tarragon.kube.core import NODES
from tarragon.kube.meta import Key
from tests.localcluster.kubelet.builders import container_json
from tests.localcluster.kubelet.gpu_pods import GI, shared_metadata
from tests.localcluster.kubelet.waiting import eventually
from tests.localcluster.kubelet.world import Json, World

MEMORY = {"nvidia.com/gpu.memory": "16384"}
SHOW = "echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"
FOREVER = "echo ready; while :; do sleep 0.05; done"
ONE_GPU: Json = {"gpus": ("GPU-a",), "capacity": {"pods": 20_000, "nvidia.com/gpu": 1000}}
STUBBORN = f"trap '' TERM; {FOREVER}"


async def share(world: World, script: str, name: str, request: float = 0.5, **options: Any) -> Json:
    spec = {key: options.pop(key) for key in ("container", "restartPolicy", "initContainers") if key in options}
    return await world.run(script, name, metadata=shared_metadata(request, **options), **spec)


async def visible(world: World, name: str) -> list[str]:
    """What the first line of a pod's log says that it sees."""
    return (await world.log(name)).splitlines()[0].split()


async def node_shows(world: World, table: Json | None) -> None:
    """Return when the node's annotation has these vGPUs."""
    await until_node(world, lambda node: _table_of(node) == table)


async def until_node(world: World, holds: Callable[[Json], bool]) -> Json:
    nodes = NODES.with_model(dict)
    async with asyncio.timeout(60):
        listing = await world.cluster.list(nodes)
        for node in listing.items:
            if holds(node):
                return node
        async for event in world.cluster.watch(nodes, Selector(), listing.resource_version):
            if event.object and holds(event.object):
                return event.object
    raise AssertionError("the watch has ended")


def _table_of(node: Json) -> Json | None:
    text = node["metadata"].get("annotations", {}).get("tarragon.dev/vgpus")
    return json.loads(text) if text else None


async def test_pods_of_a_vgpu_see_one_gpu_and_others_do_not_see_it(world: World) -> None:
    world.start_kubelet()
    for name, vgpu in (("one", 0), ("two", 0), ("three", 1)):
        await share(world, f"{SHOW}; {FOREVER}", name, vgpu=vgpu)
        await world.says("ready", name)
    await world.run(SHOW, "none", restartPolicy="Never")
    await world.phase("Succeeded", "none")

    seen = {name: await visible(world, name) for name in ("one", "two", "three", "none")}

    assert seen == {
        "one": ["GPU-a", "GPU-a", "PCI_BUS_ID"],
        "two": ["GPU-a", "GPU-a", "PCI_BUS_ID"],
        "three": ["GPU-b", "GPU-b", "PCI_BUS_ID"],
        "none": ["-1"],
    }


async def test_all_containers_of_a_pod_see_the_gpu_that_it_shares(world: World) -> None:
    world.start_kubelet()
    init = container_json(name="init", command=["sh", "-c", SHOW])
    await share(world, SHOW, "p", restartPolicy="Never", initContainers=[init])
    await world.phase("Succeeded", "p")

    assert [(await world.log("p", container=name)).split()[0] for name in ("init", "main")] == ["GPU-a", "GPU-a"]


async def test_a_restarted_kubelet_knows_the_gpus_of_its_vgpus(world: World) -> None:
    world.start_kubelet()
    await world.run(f"{SHOW}; {FOREVER}", "whole", container={"resources": {"limits": {"nvidia.com/gpu": 1}}})
    await world.says("ready", "whole")
    await share(world, f"{SHOW}; {FOREVER}", "one", vgpu=3)
    await world.says("ready", "one")
    await world.stop_kubelet()
    await world.delete("whole", grace=0)
    world.start_kubelet()

    await share(world, f"{SHOW}; {FOREVER}", "two", vgpu=3)
    await world.says("ready", "two")
    await share(world, "true", "three", vgpu=3)
    refused = await world.phase("Failed", "three")

    assert [(await visible(world, name))[0] for name in ("one", "two")] == ["GPU-b", "GPU-b"]
    assert refused["status"]["reason"] == "OutOfnvidia.com/gpu"
    assert "vGPU 3 (GPU GPU-b)" in refused["status"]["message"]


async def test_the_kubelet_keeps_the_label_with_the_memory_by_which_it_refuses_pods(world: World) -> None:
    kubelet = world.start_kubelet(labels=MEMORY, heartbeat_seconds=0.05)
    await kubelet.node_registration.became_ready()
    name = (await world.node_object())["metadata"]["name"]
    wrong = {"nvidia.com/gpu.memory": "81920", "team": "vision"}
    await world.cluster.patch(NODES, Key("", name), {"metadata": {"labels": wrong}})

    node = await until_node(world, lambda node: node["metadata"]["labels"].items() >= MEMORY.items())
    assert node["metadata"]["labels"]["team"] == "vision"


async def test_a_pod_that_is_ending_keeps_its_gpu_across_a_restart(world: World) -> None:
    world.start_kubelet(**ONE_GPU)
    await share(world, STUBBORN, "ending", vgpu=0)
    await world.says("ready", "ending")
    await world.delete("ending", grace=600)
    await world.event("Killing")
    await world.stop_kubelet()

    world.start_kubelet(**ONE_GPU)
    await world.run("true", "whole", container={"resources": {"limits": {"nvidia.com/gpu": 1}}})
    refused = await world.phase("Failed", "whole")

    assert refused["status"]["reason"] == "OutOfnvidia.com/gpu"


async def test_a_pod_that_waits_for_a_gpu_gets_it_from_the_next_kubelet(world: World) -> None:
    world.start_kubelet(**ONE_GPU)
    await share(world, STUBBORN, "ending", vgpu=0)
    await world.says("ready", "ending")
    await world.delete("ending", grace=0)
    waiting = await share(world, f"{SHOW}; {FOREVER}", "waiting", 0.75, vgpu=0)
    await eventually((world.node / "pods" / waiting["metadata"]["uid"] / "pod.json").exists)
    await world.stop_kubelet()

    world.start_kubelet(**ONE_GPU)
    await world.says("ready", "waiting")
    await share(world, "true", "third", 0.5, vgpu=0)
    refused = await world.phase("Failed", "third")

    assert (await visible(world, "waiting"))[0] == "GPU-a"
    assert refused["status"]["reason"] == "OutOfnvidia.com/gpu"


async def test_a_gpu_of_a_pod_that_vanished_without_a_kubelet_is_free_when_its_program_has_ended(world: World) -> None:
    pid = world.folder / "pid"
    world.start_kubelet(**ONE_GPU)
    await share(world, f"echo $$$$ > {pid}; {STUBBORN}", "old", vgpu=0)
    await world.says("ready", "old")
    await world.stop_kubelet()
    await world.delete("old", grace=0)
    gpu = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    await world.run(f"! kill -0 $(cat {pid})", "new", restartPolicy="Never", container=gpu)

    world.start_kubelet(**ONE_GPU)
    ended = await world.until(lambda pod: pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}, "new")

    assert ended["status"]["phase"] == "Succeeded"


async def test_a_gpu_can_be_held_whole_when_the_last_pod_that_shared_it_is_gone(world: World) -> None:
    world.start_kubelet(**ONE_GPU)
    for name in ("one", "two"):
        await share(world, "true", name, vgpu=0, restartPolicy="Never")
        await world.phase("Succeeded", name)
    await world.run(SHOW, "whole", container={"resources": {"limits": {"nvidia.com/gpu": 1}}}, restartPolicy="Never")
    await world.phase("Succeeded", "whole")

    assert (await visible(world, "whole"))[0] == "GPU-a"


async def test_a_pod_without_a_scheduler_gets_a_vgpu_and_is_told_which(world: World) -> None:
    world.start_kubelet()
    await share(world, f"{SHOW}; {FOREVER}", "p")
    await world.says("ready", "p")

    annotations = (await world.phase("Running", "p"))["metadata"]["annotations"]

    assert annotations["tarragon.dev/vgpu"] == "0"
    assert annotations["tarragon.dev/gpu-uuid"] == "GPU-a"
    assert annotations["kubeshare/gpu_request"] == "0.5"


async def test_an_event_says_how_much_of_which_gpu_a_pod_has(world: World) -> None:
    world.start_kubelet(labels=MEMORY, pretended=frozenset({"nvidia.com/gpu"}))
    await share(world, "true", "p", 0.25, memory=3 * GI, vgpu=0)

    assert await world.event("DevicesAllocated") == (
        "has 0.25 of GPU GPU-a (vGPU 0), 3Gi of 16Gi memory (pretended: this machine has no such device)"
    )


async def test_the_limits_of_a_share_are_variables_unless_the_manifest_has_its_own(world: World) -> None:
    world.start_kubelet(
        labels=MEMORY, caller_environment={"PATH": "/usr/bin:/bin", "CUDA_MPS_PIPE_DIRECTORY": "/nowhere"}
    )
    for name, own in (
        ("none", "OTHER"),
        ("same", "XLA_PYTHON_CLIENT_MEM_FRACTION"),
        ("newer", "XLA_CLIENT_MEM_FRACTION"),
    ):
        container = {"env": [{"name": own, "value": ".9"}]}
        script = "env | grep -E '_MEM_FRACTION|ALLOW_GROWTH|CUDA_MPS' | sort"
        await share(world, script, name, 0.25, memory=4 * GI, restartPolicy="Never", container=container)
        await world.phase("Succeeded", name)

    assert [(await world.log(name)).split() for name in ("none", "same", "newer")] == [
        ["TF_FORCE_GPU_ALLOW_GROWTH=true", "XLA_PYTHON_CLIENT_MEM_FRACTION=0.2109"],
        ["TF_FORCE_GPU_ALLOW_GROWTH=true", "XLA_PYTHON_CLIENT_MEM_FRACTION=.9"],
        ["TF_FORCE_GPU_ALLOW_GROWTH=true", "XLA_CLIENT_MEM_FRACTION=.9"],
    ]


async def test_the_node_shows_who_shares_its_gpus_while_someone_does(world: World) -> None:
    world.start_kubelet()
    await share(world, FOREVER, "one", 0.25, vgpu=0)
    await share(world, FOREVER, "two", 0.5, vgpu=0)
    both = {"0": {"gpu": "GPU-a", "pods": {"default/one": 250, "default/two": 500}}}
    await node_shows(world, both)
    await world.delete("one", grace=0)
    await node_shows(world, {"0": {"gpu": "GPU-a", "pods": {"default/two": 500}}})
    await world.delete("two", grace=0)
    await node_shows(world, None)


async def test_a_node_that_registers_again_shows_its_vgpus(world: World) -> None:
    world.start_kubelet(heartbeat_seconds=0.01)
    await share(world, FOREVER, "one", 0.25, vgpu=0)
    table = {"0": {"gpu": "GPU-a", "pods": {"default/one": 250}}}
    await node_shows(world, table)
    await world.cluster.delete(NODES, Key("", "n"))

    await node_shows(world, table)


async def test_a_share_that_does_not_fit_fails_its_pod_with_the_numbers(world: World) -> None:
    world.start_kubelet(labels=MEMORY)
    await share(world, FOREVER, "one", 0.1, memory=12 * GI, vgpu=0)
    await world.phase("Running", "one")
    await share(world, "true", "two", 0.1, memory=5 * GI, vgpu=0)

    refused = await world.phase("Failed", "two")

    assert refused["status"]["reason"] == "OutOfnvidia.com/gpu"
    assert refused["status"]["message"].endswith("requested: 5Gi, used: 12Gi, capacity: 16Gi")
