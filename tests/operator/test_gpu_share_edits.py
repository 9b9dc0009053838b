"""Templates of running jobs are edited so that their replicas need another part of a GPU: the next pods get that."""

from __future__ import annotations

from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tests.operator.anchor_stage import (
    VGPU,
    anchors,
    blocked,
    delete,
    gpu_nodes,
    gpu_of,
    shared,
    start_operator,
    until_run,
)
from tests.operator.stage import TFJOBS, Json, Stage, group

WHOLE = group(1, **{"nvidia.com/gpu": "1"})


async def edit(stage: Stage, name: str, worker: Json) -> None:
    replaced = {"spec": {"tfReplicaSpecs": {"Worker": None}}}
    await stage.world.client.patch(TFJOBS, Key("default", name), replaced)
    await stage.world.client.patch(TFJOBS, Key("default", name), {"spec": {"tfReplicaSpecs": {"Worker": worker}}})


async def replace_pod(stage: Stage, pod: str) -> None:
    """As an eviction does."""
    before = stage.pods()[pod]["metadata"]["uid"]
    await stage.world.client.delete(PODS, Key("default", pod))
    await stage.world.until(lambda: pod not in stage.pods() or stage.pods()[pod]["metadata"]["uid"] != before)


def vgpu_of(stage: Stage, pod: str) -> str:
    return str(stage.pods()[pod]["metadata"].get("annotations", {}).get(VGPU, ""))


async def test_the_next_pod_shares_a_gpu_where_a_whole_one_was_requested(stage: Stage) -> None:
    async with gpu_nodes(stage, "n", gpus=1):
        start_operator(stage)
        await stage.submit("a", Worker=WHOLE)
        await until_run(stage, "a", 1)
        await edit(stage, "a", shared(1, "0.4"))
        await replace_pod(stage, "a-worker-0")
        await until_run(stage, "a", 1)

        (anchor,) = anchors(stage).values()
        assert vgpu_of(stage, "a-worker-0") == "0"
        assert gpu_of(stage.pods()["a-worker-0"]) == gpu_of(anchor)


async def test_the_next_pod_has_a_whole_gpu_where_a_share_was_requested(stage: Stage) -> None:
    async with gpu_nodes(stage, "n", gpus=1):
        start_operator(stage)
        await stage.submit("a", Worker=shared(1, "0.4"))
        await until_run(stage, "a", 1)
        await edit(stage, "a", WHOLE)
        await replace_pod(stage, "a-worker-0")
        await until_run(stage, "a", 1)

        assert not anchors(stage)
        assert vgpu_of(stage, "a-worker-0") == ""


async def test_a_share_that_has_grown_goes_to_another_gpu_where_others_hold_the_rest(stage: Stage) -> None:
    async with gpu_nodes(stage, "n"):
        start_operator(stage)
        await stage.submit("a", Worker=shared(1, "0.3"))
        await until_run(stage, "a", 1)
        await stage.submit("b", Worker=shared(1, "0.6"))
        await until_run(stage, "b", 1)
        assert vgpu_of(stage, "a-worker-0") == vgpu_of(stage, "b-worker-0")
        await edit(stage, "a", shared(1, "0.5"))
        await replace_pod(stage, "a-worker-0")
        await until_run(stage, "a", 1)

        assert vgpu_of(stage, "a-worker-0") != vgpu_of(stage, "b-worker-0")


async def test_a_share_that_has_grown_waits_for_its_gpu_where_no_other_is_free(stage: Stage) -> None:
    async with gpu_nodes(stage, "n", gpus=1):
        start_operator(stage)
        await stage.submit("a", Worker=shared(1, "0.3"))
        await stage.submit("b", Worker=shared(1, "0.6"))
        await until_run(stage, "a", 1)
        await until_run(stage, "b", 1)
        await edit(stage, "a", shared(1, "0.5"))
        await replace_pod(stage, "a-worker-0")
        await stage.world.until(lambda: bool(blocked(stage, "a")))
        await delete(stage, "b")
        await until_run(stage, "a", 1)
