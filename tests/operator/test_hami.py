"""Pods share GPUs of nodes by HAMi's means: the operator names the GPU, and HAMi's scheduler binds the pod."""

from __future__ import annotations

from collections import defaultdict

from tarragon.cli.jobview.gpus import gpus_of_pod
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import NODES, PODS, Pod
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import OperatorOptions
from tarragon.plan.objects.placement import with_node_affinity
from tests.hami import CHOSEN, REGISTER, SCHEDULER, registered, uuid
from tests.operator.anchor_stage import (
    an_operator,
    anchor_settings,
    anchors,
    blocked,
    condition,
    delete,
    runs,
    shared,
    start_operator,
    until_run,
)
from tests.operator.hami_stage import VGPU, all_pods, given, hami_nodes, hami_scheduler, limits, named, pinned, register
from tests.operator.stage import Stage, group

GPU = "nvidia.com/gpu"


def assert_that_no_gpu_has_two_uses(stage: Stage) -> None:
    uses: dict[str, set[str]] = defaultdict(set)
    for name, pod in stage.pods().items():
        number = pod["metadata"]["annotations"].get(VGPU)
        assert given(pod) == named(pod)
        for gpu in given(pod):
            uses[gpu].add(name if number is None else f"{pod['spec']['nodeName']}/{number}")
    assert all(len(places) == 1 for places in uses.values()), uses


async def a_pod_of_others(stage: Stage, name: str, gpu: int, **spec: str) -> None:
    """It has 30 percent of a GPU of node n."""
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: "1"}}}
    metadata = {"name": name, "namespace": "default", "annotations": {CHOSEN: f"{uuid('n', gpu)},NVIDIA,100,30:;"}}
    await stage.world.client.create(PODS, {"metadata": metadata, "spec": {"containers": [container], **spec}})


async def test_two_halves_and_a_whole_get_two_gpus(stage: Stage) -> None:
    async with hami_nodes(stage, "n"), hami_scheduler(stage):
        start_operator(stage)
        await stage.submit("half", Worker=shared(2, "0.5"))
        await stage.submit("whole", Worker=group(1, **{GPU: "1"}))
        await until_run(stage, "half", 2)
        await until_run(stage, "whole", 1)

        assert not anchors(stage)
        assert_that_no_gpu_has_two_uses(stage)
        views = {name: gpus_of_pod(decode(encode(pod), Pod), 0) for name, pod in stage.pods().items()}
        assert views["whole-worker-0"] == "1 GPU"
        assert views["half-worker-0"].startswith("0.5 of vGPU 0 (GPU-000000")
        first, second, whole = (stage.pods()[name] for name in ("half-worker-0", "half-worker-1", "whole-worker-0"))
        assert given(first) == given(second) != given(whole)
        assert limits(first) == limits(second) == {"gpu": "1", "gpucores": "50", "gpumem": "8192"}
        assert limits(whole) == {"gpu": "1", "gpucores": "100", "gpumem-percentage": "100"}
        for pod in (first, second, whole):
            assert (pod["spec"]["schedulerName"], pinned(pod)) == (SCHEDULER, "n")
            assert pod["metadata"]["annotations"]["nvidia.com/use-gpuuuid"] == ",".join(named(pod))
            assert not any(each["name"].startswith("NVIDIA") for each in pod["spec"]["containers"][0].get("env", []))
        assert condition(stage, "half", "GpuIsolation")["reason"] == "HAMi"
        assert not condition(stage, "whole", "GpuIsolation")


async def test_replicas_without_gpus_are_created_as_everywhere(stage: Stage) -> None:
    async with hami_nodes(stage, "n"), hami_scheduler(stage):
        start_operator(stage)
        await stage.submit("a", PS=group(1), Worker=shared(1, "0.5"))
        await until_run(stage, "a", 1)

        server = stage.pods()["a-ps-0"]["spec"]
        assert server["nodeName"] == "n"
        assert server.get("schedulerName") != SCHEDULER


async def test_a_gang_with_several_whole_gpus_for_each_replica_is_created_in_one_go(stage: Stage) -> None:
    async with hami_nodes(stage, "n", gpus=8), hami_scheduler(stage):
        start_operator(stage)
        await stage.submit("a", Worker=group(4, **{GPU: "2"}))
        await until_run(stage, "a", 4)

        assert_that_no_gpu_has_two_uses(stage)
        assert len({gpu for pod in stage.pods().values() for gpu in given(pod)}) == 8
        assert stage.made().count("a-worker-3") == 1


async def test_as_many_gpus_are_given_away_as_there_are_and_no_more(stage: Stage) -> None:
    async with hami_nodes(stage, "n", gpus=2), hami_scheduler(stage) as hami:
        await register(stage, "n", registered("n", 2, faulty=[1]))
        start_operator(stage)
        await stage.submit("a", Worker=group(1, **{GPU: "1"}))
        await until_run(stage, "a", 1)
        await stage.submit("b", Worker=group(1, **{GPU: "1"}))
        await stage.world.until(lambda: bool(condition(stage, "b", "Admitted").get("message")))
        assert not runs(stage, "b", 1)

        await register(stage, "n", registered("n", 2))
        await until_run(stage, "b", 1)
        assert_that_no_gpu_has_two_uses(stage)
        assert hami.refusals == []


async def test_a_vgpu_keeps_its_gpu_until_its_last_pod_is_gone(stage: Stage) -> None:
    async with hami_nodes(stage, "n", gpus=2), hami_scheduler(stage):
        start_operator(stage)
        await stage.submit("a", Worker=shared(1, "0.5"))
        await until_run(stage, "a", 1)
        gpu = given(stage.pods()["a-worker-0"])
        await stage.submit("b", Worker=shared(1, "0.5"))
        await until_run(stage, "b", 1)
        # Takes the other GPU, on which c would begin if it came before the pod of a has gone.
        await stage.submit("d", Worker=group(1, **{GPU: "1"}))
        await until_run(stage, "d", 1)
        await delete(stage, "a")
        await stage.submit("c", Worker=shared(1, "0.5"))
        await until_run(stage, "c", 1)

        assert given(stage.pods()["b-worker-0"]) == given(stage.pods()["c-worker-0"]) == gpu


async def test_a_new_operator_knows_which_gpus_are_in_use(stage: Stage) -> None:
    async with hami_nodes(stage, "n", gpus=3), hami_scheduler(stage):
        first = an_operator(stage, None, OperatorOptions(seed=1, settings=anchor_settings()))
        stage.keep(first)
        await stage.submit("a", Worker=shared(1, "0.6"))
        await stage.submit("b", Worker=group(1, **{GPU: "1"}))
        await until_run(stage, "a", 1)
        await until_run(stage, "b", 1)
        await stage.kill(first)
        start_operator(stage)
        await stage.submit("c", Worker=shared(1, "0.6"))
        await stage.submit("d", Worker=shared(1, "0.4"))
        await until_run(stage, "c", 1)
        await until_run(stage, "d", 1)

        assert_that_no_gpu_has_two_uses(stage)
        assert len({gpu for pod in stage.pods().values() for gpu in given(pod)}) == 3


async def test_gpus_that_hami_has_given_to_pods_of_others_are_left_alone(stage: Stage) -> None:
    async with hami_nodes(stage, "n", gpus=2), hami_scheduler(stage):
        await a_pod_of_others(stage, "other", 0, nodeName="n")
        start_operator(stage)
        await stage.submit("a", Worker=shared(2, "0.5"))
        await until_run(stage, "a", 2)

        assert {gpu for name in ("a-worker-0", "a-worker-1") for gpu in given(stage.pods()[name])} == {uuid("n", 1)}
        await stage.submit("b", Worker=shared(1, "0.1"))
        await stage.world.until(lambda: bool(condition(stage, "b", "Admitted").get("message")))
        assert not runs(stage, "b", 1)


async def test_more_pods_of_others_than_gpus_leave_none(stage: Stage) -> None:
    async with hami_nodes(stage, "n", "m", gpus=2), hami_scheduler(stage):
        for number in range(6):
            await a_pod_of_others(stage, f"other-{number}", number % 2, nodeName="n")
        start_operator(stage)
        await stage.submit("a", Worker=shared(4, "0.5"))
        await until_run(stage, "a", 4)
        await stage.submit("b", Worker=group(1, **{GPU: "1"}))
        await stage.world.until(lambda: bool(condition(stage, "b", "Admitted").get("message")))

        assert {stage.pods()[f"a-worker-{index}"]["spec"]["nodeName"] for index in range(4)} == {"m"}
        assert not runs(stage, "b", 1)


async def test_a_job_says_why_hami_does_not_bind_its_pod(stage: Stage) -> None:
    async with hami_nodes(stage, "n", gpus=1), hami_scheduler(stage):
        start_operator(stage)
        await stage.submit("a", Worker=shared(1, "0.5"))
        await until_run(stage, "a", 1)
        # HAMi counts a pod that Tarragon can't see there: its node is not named yet.
        await a_pod_of_others(stage, "other", 0, schedulerName="nobody")
        await stage.submit("b", Worker=shared(1, "0.5"))
        await stage.world.until(lambda: bool(blocked(stage, "b")))

        assert blocked(stage, "b") == "Unschedulable: pod b-worker-0 can't be bound: 1/1 CardInsufficientMemory"


async def test_the_number_of_the_resource_in_the_template_is_replaced(stage: Stage) -> None:
    resources = {GPU: "1", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "30"}
    async with hami_nodes(stage, "n", gpus=1), hami_scheduler(stage):
        start_operator(stage)
        await stage.submit("a", Worker=group(2, **resources))
        await until_run(stage, "a", 2)

        assert_that_no_gpu_has_two_uses(stage)
        for pod in stage.pods().values():
            assert limits(pod) == {"gpu": "1", "gpumem": "4k", "gpucores": "30"}
            assert pod["metadata"]["annotations"]["kubeshare/gpu_request"] == "0.3"


async def test_a_job_that_leaves_its_placement_to_hami_is_created_as_it_is(stage: Stage) -> None:
    async with hami_nodes(stage, "n", gpus=1), hami_scheduler(stage):
        start_operator(stage)
        worker = group(1, **{GPU: "1", "nvidia.com/gpumem": "4096"})
        worker["template"]["spec"] |= with_node_affinity({"schedulerName": SCHEDULER}, "n")
        await stage.submit("a", Worker=worker)
        await until_run(stage, "a", 1)

        (pod,) = stage.pods().values()
        assert given(pod) == {uuid("n", 0)}
        assert named(pod) == set()
        assert limits(pod) == {"gpu": "1", "gpumem": "4096"}


async def test_a_node_that_loses_its_annotation_gets_no_more_pods_with_gpus(stage: Stage) -> None:
    async with hami_nodes(stage, "n", gpus=1), hami_scheduler(stage):
        start_operator(stage)
        await stage.submit("a", Worker=shared(1, "0.5"))
        await until_run(stage, "a", 1)
        await stage.world.client.patch(NODES, Key("", "n"), {"metadata": {"annotations": {REGISTER: None}}})
        await stage.submit("b", Worker=shared(1, "0.5"))
        await stage.world.until(lambda: bool(condition(stage, "b", "Admitted").get("message")))

        assert list(all_pods(stage)) == ["pods/default/a-worker-0"]
