"""The operator on the embedded API: jobs say by KubeShare's annotations with whom they share GPUs."""

from __future__ import annotations

from typing import Any

from tarragon.kube.core import PODS
from tests.operator.anchor_stage import VGPU, condition
from tests.operator.stage import Stage, group

Json = dict[str, Any]
GPU = "nvidia.com/gpu"


def sharing(replicas: int, **constraints: str) -> Json:
    made = group(replicas)
    names = {
        "gpu_request": "0.2",
        "gpu_limit": "1",
        **{name.replace("_anti_", "_anti-"): value for name, value in constraints.items()},
    }
    annotations = {f"kubeshare/{name}": value for name, value in names.items()}
    return {**made, "template": {"metadata": {"annotations": annotations}, **made["template"]}}


def vgpus(stage: Stage, job: str) -> list[str]:
    """The vGPUs of the job's pods, in order of their names."""
    pods = stage.pods()
    return [pods[name]["metadata"]["annotations"][VGPU] for name in sorted(pods) if name.startswith(f"{job}-")]


async def submitted(stage: Stage, name: str, **constraints: str) -> list[str]:
    await stage.submit(name, Worker=sharing(1, **constraints))
    await stage.world.until(lambda: bool(vgpus(stage, name)))
    return vgpus(stage, name)


async def test_pods_share_gpus_with_those_only_whom_their_constraints_permit(stage: Stage) -> None:
    await stage.node("n", **{GPU: "6"})
    stage.start_operator()

    assert await submitted(stage, "anybody") == ["0"]
    assert await submitted(stage, "red", sched_affinity="red") == ["1"]
    assert await submitted(stage, "also-red", sched_affinity="red") == ["1"]
    assert await submitted(stage, "mine", sched_exclusion="me") == ["2"]
    assert await submitted(stage, "also-mine", sched_exclusion="me") == ["2"]
    assert await submitted(stage, "named", GPUID="abcde") == ["3"]
    assert await submitted(stage, "same-name", GPUID="abcde") == ["3"]
    await stage.submit("apart", Worker=sharing(4, sched_anti_affinity="apart"))
    await stage.world.until(lambda: len(vgpus(stage, "apart")) == 4)
    assert set(vgpus(stage, "apart")) == {"0", "1", "3", "4"}, "the second one is mine alone"


async def test_marks_of_pods_outlast_the_operator_and_go_with_the_pods(stage: Stage) -> None:
    await stage.node("n", **{GPU: "2"})
    operator = stage.operator()
    stage.keep(operator)
    await stage.submit("first", Worker=sharing(2, sched_anti_affinity="a"))
    await stage.world.until(lambda: len(vgpus(stage, "first")) == 2)
    await stage.kill(operator)

    stage.start_operator()
    await stage.submit("second", Worker=sharing(1, sched_anti_affinity="a"))
    await stage.submit("other", Worker=sharing(1, sched_anti_affinity="b"))
    await stage.world.until(
        lambda: bool(vgpus(stage, "other") and condition(stage, "second", "Admitted").get("message"))
    )
    assert (
        condition(stage, "second", "Admitted")["message"]
        == "GPUs have 0.2 left, but none that kubeshare/sched_anti-affinity permits"
    )
    assert not vgpus(stage, "second")

    await stage.plays("first-worker-0", "Succeeded", 0)
    await stage.world.until(lambda: bool(vgpus(stage, "second")))


async def test_a_pod_that_somebody_has_made_by_hand_has_its_gpu_to_itself_if_it_says_so(stage: Stage) -> None:
    await stage.node("n", **{GPU: "2"})
    names = {"kubeshare/gpu_request": "0.2", "kubeshare/gpu_limit": "1", "kubeshare/sched_exclusion": "me", VGPU: "0"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "by-hand", "namespace": "default", "annotations": names},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    }
    await stage.world.client.create(PODS, pod)
    stage.start_operator()

    assert await submitted(stage, "anybody") == ["1"]
