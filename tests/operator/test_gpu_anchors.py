"""Pods share the GPUs of nodes whose device plugin knows only whole ones: the operator holds them by anchor pods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.kube.core import NODES, PODS, PRIORITY_CLASSES
from tarragon.kube.meta import Key
from tarragon.operator.gpu_anchors.controller import LATE_WRITE_SECONDS
from tarragon.operator.manager.operator import OperatorOptions
from tarragon.plan.objects.gpu_anchors import CLOSING_ANNOTATION
from tarragon.plan.objects.placement import Placement
from tarragon.scheduling.api.rules import SchedulingRules
from tarragon.scheduling.policies import POLICIES
from tests.operator.anchor_stage import (
    SYSTEM,
    VGPU,
    an_operator,
    anchor_settings,
    anchors,
    blocked,
    condition,
    delete,
    gpu_nodes,
    gpu_of,
    runs,
    shared,
    start_operator,
    until_run,
    variables,
)
from tests.operator.stage import TFJOBS, Stage, group

GPU = "nvidia.com/gpu"
SOON = SchedulingRules(starvation_seconds=0.0, idle_seconds=0.1, cool_down_seconds=0.0)


async def test_four_halves_share_two_gpus_which_go_back_with_the_last_job(stage: Stage) -> None:
    async with gpu_nodes(stage, "n"):
        start_operator(stage)
        await stage.submit("a", Worker=shared(4, "0.5"))
        await until_run(stage, "a", 4)

        held = anchors(stage)
        assert set(held) == {"tarragon-gpu-n-0", "tarragon-gpu-n-1"}
        assert len({gpu_of(anchor) for anchor in held.values()}) == 2
        for pod in stage.pods().values():
            number = pod["metadata"]["annotations"][VGPU]
            assert gpu_of(pod) == gpu_of(held[f"tarragon-gpu-n-{number}"])
            found = variables(pod["spec"]["containers"][0])
            assert found["NVIDIA_VISIBLE_DEVICES"] == gpu_of(pod)
            assert found["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
            assert found["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.4921"
            assert not any(name.startswith("CUDA_MPS") for name in found)
            assert "volumes" not in pod["spec"]

        await delete(stage, "a")
        await stage.world.until(lambda: not stage.pods() and not anchors(stage))


async def test_a_job_that_comes_later_shares_the_gpu_at_once(stage: Stage) -> None:
    async with gpu_nodes(stage, "n"):
        start_operator(stage)
        await stage.submit("a", Worker=shared(1, "0.5"))
        await until_run(stage, "a", 1)
        (anchor,) = anchors(stage).values()
        await stage.submit("b", Worker=shared(1, "0.5"))
        await until_run(stage, "b", 1)
        # Takes the other GPU, on which c would begin if it came before the pod of a has gone.
        await stage.submit("d", Worker=group(1, **{GPU: "1"}))
        await until_run(stage, "d", 1)
        await delete(stage, "a")
        await stage.submit("c", Worker=shared(1, "0.5"))
        await until_run(stage, "c", 1)

        (still,) = anchors(stage).values()
        assert still["metadata"]["uid"] == anchor["metadata"]["uid"]
        assert {gpu_of(stage.pods()[f"{name}-worker-0"]) for name in "bc"} == {gpu_of(anchor)}


async def test_a_job_with_whole_gpus_gets_them_when_the_last_share_is_gone(stage: Stage) -> None:
    async with gpu_nodes(stage, "n", gpus=1):
        start_operator(stage)
        await stage.submit("a", Worker=shared(1, "0.3"))
        await until_run(stage, "a", 1)
        await stage.submit("b", Worker=group(1, **{GPU: "1"}))
        await stage.world.until(lambda: bool(condition(stage, "b", "Admitted").get("message")))
        assert not runs(stage, "b", 1)

        await delete(stage, "a")
        await until_run(stage, "b", 1)
        assert not anchors(stage)


async def test_a_share_waits_for_whole_gpus_that_others_hold(stage: Stage) -> None:
    async with gpu_nodes(stage, "n", gpus=1):
        start_operator(stage)
        await stage.submit("a", Worker=group(1, **{GPU: "1"}))
        await until_run(stage, "a", 1)
        await stage.submit("b", Worker=shared(1, "0.3"))
        await stage.world.until(lambda: bool(condition(stage, "b", "Admitted").get("message")))
        assert not anchors(stage)

        await delete(stage, "a")
        await until_run(stage, "b", 1)


async def test_an_urgent_job_with_whole_gpus_preempts_shares_and_nobody_else(stage: Stage) -> None:
    await stage.world.create(PRIORITY_CLASSES, "high", namespace="", value=1000)
    async with gpu_nodes(stage, "n", gpus=2):
        options = OperatorOptions(seed=1, settings=anchor_settings(), policy=POLICIES["dragon"], rules=lambda: SOON)
        stage.keep(an_operator(stage, None, options))
        await stage.submit("whole", Worker=group(1, policy="OnFailure", **{GPU: "1"}))
        await until_run(stage, "whole", 1)
        await stage.submit("half", Worker=shared(2, "0.5", policy="OnFailure"))
        await until_run(stage, "half", 2)

        urgent: Any = {"runPolicy": {"schedulingPolicy": {"priorityClass": "high"}}}
        await stage.submit("urgent", Worker=group(1, **{GPU: "1"}), **urgent)
        await until_run(stage, "urgent", 1)

        assert runs(stage, "whole", 1) != runs(stage, "half", 2)


async def test_a_new_operator_keeps_what_is_in_use_and_deletes_the_rest(stage: Stage) -> None:
    async with gpu_nodes(stage, "n"):
        first = an_operator(stage, None, OperatorOptions(seed=1, settings=anchor_settings()))
        stage.keep(first)
        await stage.submit("a", Worker=shared(1, "0.6"))
        await stage.submit("b", Worker=shared(1, "0.6"))
        await until_run(stage, "a", 1)
        await until_run(stage, "b", 1)
        before = {name: anchor["metadata"]["uid"] for name, anchor in anchors(stage).items()}
        await stage.kill(first)
        await delete(stage, "b")
        await stage.world.until(lambda: "b-worker-0" not in stage.pods())
        kept = f"tarragon-gpu-n-{stage.pods()['a-worker-0']['metadata']['annotations'][VGPU]}"

        start_operator(stage)
        await stage.world.until(lambda: set(anchors(stage)) == {kept})
        assert anchors(stage)[kept]["metadata"]["uid"] == before[kept]
        assert runs(stage, "a", 1)


class NotesDeletes(DelegatingClient):
    """Notes when the first delete of each pod is requested."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.world.client)
        self._clock = stage.world.clock
        self.times: dict[str, float] = {}

    async def delete(self, resource: Any, key: Key, *what: Any, **how: Any) -> Any:
        self.times.setdefault(key.name, self._clock.monotonic())
        return await super().delete(resource, key, *what, **how)


async def test_a_new_operator_takes_no_gpu_back_while_a_pod_of_the_one_before_may_still_come(stage: Stage) -> None:
    async with gpu_nodes(stage, "n"):
        first = an_operator(stage, None, OperatorOptions(seed=1, settings=anchor_settings()))
        stage.keep(first)
        await stage.submit("a", Worker=shared(1, "0.6"))
        await until_run(stage, "a", 1)
        await stage.kill(first)
        await delete(stage, "a")
        (anchor,) = anchors(stage)

        client = NotesDeletes(stage)
        started_at = stage.world.clock.monotonic()
        start_operator(stage, client)
        await stage.world.until(lambda: not anchors(stage))
        assert client.times[anchor] - started_at >= LATE_WRITE_SECONDS


class HoldsCreates(DelegatingClient):
    """The request to create a certain pod is under way until it is let through; whoever sent it never has an answer."""

    def __init__(self, stage: Stage, pod: str) -> None:
        super().__init__(stage.world.client)
        self._pod = pod
        self._held: tuple[Any, Any] | None = None
        self.holds_it = asyncio.Event()

    async def create(self, resource: Any, body: Any, *what: Any, **how: Any) -> Any:
        if resource.plural != PODS.plural or body["metadata"]["name"] != self._pod:
            return await super().create(resource, body, *what, **how)
        self._held = resource, body
        self.holds_it.set()
        return await asyncio.Event().wait()

    async def let_through(self) -> None:
        assert self._held
        await super().create(*self._held)


async def test_a_pod_of_the_operator_before_that_comes_late_keeps_its_gpu(stage: Stage) -> None:
    async with gpu_nodes(stage, "n"):
        client = HoldsCreates(stage, "a-worker-0")
        first = an_operator(stage, client, OperatorOptions(seed=1, settings=anchor_settings()))
        stage.keep(first)
        await stage.submit("a", Worker=shared(1, "0.6"))
        await client.holds_it.wait()
        await stage.kill(first)
        await delete(stage, "a")
        start_operator(stage)
        await stage.world.until(lambda: is_closing(stage))

        await client.let_through()
        await stage.world.until(lambda: runs(stage, "a", 1) and not is_closing(stage))
        await stage.world.client.delete(PODS, Key("default", "a-worker-0"))
        await stage.world.until(lambda: not anchors(stage))


def is_closing(stage: Stage) -> bool:
    """The only anchor."""
    (anchor,) = anchors(stage).values()
    return CLOSING_ANNOTATION in anchor["metadata"]["annotations"]


async def test_an_anchor_that_the_node_rejects_is_named_and_the_job_is_queued_again(stage: Stage) -> None:
    async with gpu_nodes(stage, "n", gpus=1):
        # The scheduler believes in a second GPU, which the kubelet does not have.
        claimed = {"capacity": {GPU: "2"}, "allocatable": {GPU: "2"}}
        await stage.world.client.patch(NODES, Key("", "n"), {"status": claimed}, subresource="status")
        start_operator(stage, creation_timeout=1.0)
        await stage.submit("a", Worker=shared(2, "0.8"))
        await stage.world.until(lambda: bool(blocked(stage, "a")))

        words = blocked(stage, "a")
        assert words.startswith("GpuNotFree: worker-")
        assert f"of node n has no GPU yet: its anchor pod {SYSTEM}/tarragon-gpu-n-" in words
        assert f"has failed: OutOf{GPU}" in words
        await stage.world.until(lambda: condition(stage, "a", "Admitted").get("reason") == "GpuNotFree")
        await stage.world.until(lambda: not anchors(stage) and not stage.pods())
        assert stage.state("a") == "Waiting"


async def test_a_rejected_anchor_is_tried_again_until_the_gpu_is_free(stage: Stage) -> None:
    async with gpu_nodes(stage, "n", gpus=1):
        claimed = {"capacity": {GPU: "2"}, "allocatable": {GPU: "2"}}
        await stage.world.client.patch(NODES, Key("", "n"), {"status": claimed}, subresource="status")
        start_operator(stage)
        await stage.submit("a", Worker=group(1, **{GPU: "1"}))
        await until_run(stage, "a", 1)
        await stage.submit("b", Worker=shared(1, "0.8"))
        await stage.world.until(lambda: "GpuNotFree" in blocked(stage, "b"))
        assert stage.made().count("b-worker-0") == 0

        await delete(stage, "a")
        await until_run(stage, "b", 1)
        await stage.world.until(lambda: not blocked(stage, "b"))


async def test_pods_on_nodes_with_mps_are_its_clients(stage: Stage) -> None:
    async with gpu_nodes(stage, "n", mps="true"):
        start_operator(stage)
        await stage.submit("a", Worker=shared(1, "0.25"))
        await until_run(stage, "a", 1)

        spec = stage.pods()["a-worker-0"]["spec"]
        found = variables(spec["containers"][0])
        assert found["CUDA_MPS_PIPE_DIRECTORY"] == "/tmp/nvidia-mps"  # noqa: S108
        assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "100"
        assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=20480M"
        assert [each["hostPath"]["path"] for each in spec["volumes"]] == ["/tmp/nvidia-mps"]  # noqa: S108
        assert [each["mountPath"] for each in spec["containers"][0]["volumeMounts"]] == ["/tmp/nvidia-mps"]  # noqa: S108


async def test_pods_that_kube_scheduler_binds_name_their_gpu_too(stage: Stage) -> None:
    async with gpu_nodes(stage, "n"):
        start_operator(stage, placement=Placement.AFFINITY)
        await stage.submit("a", Worker=shared(1, "0.5"))
        await stage.until_pods("a-worker-0")
        (anchor,) = anchors(stage).values()
        pod = stage.pods()["a-worker-0"]
        assert (gpu_of(pod), "nodeName" in pod["spec"]) == (gpu_of(anchor), False)

        # Nobody binds it: the GPU is held as long as it may still be bound.
        await stage.world.client.delete(TFJOBS, Key("default", "a"))
        await stage.submit("b", Worker=shared(1, "0.5"))
        await stage.until_pods("a-worker-0", "b-worker-0")
        assert anchor["metadata"]["uid"] in {each["metadata"]["uid"] for each in anchors(stage).values()}


async def test_anchors_of_a_node_that_is_deleted_go_with_it(stage: Stage) -> None:
    await stage.node("other")
    async with gpu_nodes(stage, "n"):
        start_operator(stage)
        await stage.submit("a", Worker=shared(1, "0.5"))
        await until_run(stage, "a", 1)
    await stage.world.client.delete(NODES, Key("", "n"))
    await stage.world.until(lambda: bool(anchors(stage)["tarragon-gpu-n-0"]["metadata"].get("deletionTimestamp")))


@pytest.mark.parametrize("sharing", ["none", "hami"])
async def test_gpus_of_nodes_that_do_not_share_them_are_left_alone(stage: Stage, sharing: str) -> None:
    await stage.node("n", sharing=sharing, **{GPU: "2"})
    start_operator(stage)
    await stage.submit("a", Worker=shared(1, "0.5"))
    await stage.world.until(lambda: bool(condition(stage, "a", "Admitted").get("message")))

    assert condition(stage, "a", "Admitted")["status"] == "False"
    assert not anchors(stage)


async def test_without_anchors_only_kubelets_share_gpus(stage: Stage) -> None:
    await stage.node("n", sharing="anchor", **{GPU: "2"})
    stage.start_operator()
    await stage.submit("a", Worker=shared(1, "0.5"))
    await stage.world.until(lambda: bool(condition(stage, "a", "Admitted").get("message")))
    assert condition(stage, "a", "Admitted")["status"] == "False"

    await stage.node("m", **{GPU: "2"})
    await stage.until_pods("a-worker-0")
    assert gpu_of(stage.pods()["a-worker-0"]) == ""


async def test_an_admission_that_somebody_forged_gets_no_anchor(stage: Stage) -> None:
    async with gpu_nodes(stage, "n", gpus=1):
        start_operator(stage)
        await stage.submit("big", Worker=group(1, **{GPU: "4"}))
        await stage.world.until(lambda: "wait" in stage.admission("big"))
        long_ago = "2026-01-01T00:00:00Z"
        nodes = {"Worker": {"n/0": "0"}}
        forged = {"queued": long_ago, "admitted": long_ago, "size": {"Worker": 1}, "nodes": nodes}
        patch = {"status": {"tarragon": {"admission": forged}}}
        await stage.world.client.patch(TFJOBS, Key("default", "big"), patch, subresource="status")
        await stage.world.until(lambda: bool(condition(stage, "big", "AdmissionRefused")))

        await stage.submit("a", Worker=group(1, **{GPU: "1"}))
        await until_run(stage, "a", 1)
        assert not any(f"pods/{SYSTEM}/" in event.what for event in stage.world.happened)


async def test_a_replica_that_restarts_names_the_same_gpu(stage: Stage) -> None:
    async with gpu_nodes(stage, "n"):
        start_operator(stage)
        await stage.submit("a", Worker=shared(1, "0.5", policy="ExitCode"))
        await until_run(stage, "a", 1)
        before, (anchor,) = stage.pods()["a-worker-0"], anchors(stage).values()
        await stage.world.client.delete(PODS, Key("default", "a-worker-0"))
        await stage.world.until(
            lambda: runs(stage, "a", 1) and stage.pods()["a-worker-0"]["metadata"]["uid"] != before["metadata"]["uid"]
        )

        (still,) = anchors(stage).values()
        assert still["metadata"]["uid"] == anchor["metadata"]["uid"]
        assert gpu_of(stage.pods()["a-worker-0"]) == gpu_of(before)
