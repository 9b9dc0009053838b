"""Pods of nodes whose GPUs HAMi shares: what they ask HAMi for, and who binds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.model import Replica
from tarragon.job.status import Admission
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.gpu_shares import GpuShare
from tarragon.plan.objects.hami_pods import hami_share, with_hami_gpus
from tarragon.plan.objects.placement import Placement
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.plan.objects.vgpus import ChosenGpus, GpuDemand, GpuWait, gpu_demand, whole_gpus
from tests.plan.world import World, manifest

Json = dict[str, Any]
A, B = "GPU-aaaa0000-06c0-7d70-1a51-e59b25b2c16c", "GPU-bbbb0000-06c0-7d70-1a51-e59b25b2c16c"
GI = 2**30
GPU, CORES, MEMORY, PERCENTAGE = (f"nvidia.com/{name}" for name in ("gpu", "gpucores", "gpumem", "gpumem-percentage"))
ONE = ChosenGpus(uuids=(A,), memory=16 * GI)


def pod(*containers: Json, annotations: Mapping[str, str] | None = None, **spec: Any) -> Json:
    return {
        "metadata": {"annotations": dict(annotations or {}), "labels": {}},
        "spec": {"containers": list(containers or [{"name": "c"}]), **spec},
    }


def container(name: str = "c", **limits: str | int) -> Json:
    return {"name": name, "resources": {"limits": {f"nvidia.com/{key}": amount for key, amount in limits.items()}}}


def limits(found: Mapping[str, Any], index: int = 0, kind: str = "containers") -> Mapping[str, Any]:
    amounts: Mapping[str, Any] = found["spec"][kind][index].get("resources", {}).get("limits", {})
    return amounts


# ---------------------------------------------------------------------------------------------------------- the amounts


@pytest.mark.parametrize(
    ("share", "memory", "expected"),
    [
        (GpuShare(request=500, limit=1000), 16 * GI, {CORES: "50", MEMORY: "8192"}),
        (GpuShare(request=335, limit=400, memory=GI), 16 * GI, {CORES: "33", MEMORY: "1024"}),
        (GpuShare(request=1, limit=1000), 16 * GI, {CORES: "1", MEMORY: "16"}),
        (GpuShare(request=1, limit=1000, memory=1), 16 * GI, {CORES: "1", MEMORY: "1"}),
        (GpuShare(request=500, limit=1000), 0, {CORES: "50", PERCENTAGE: "50"}),
        (GpuShare(request=500, limit=1000, memory=GI), 0, {CORES: "50", MEMORY: "1024"}),
    ],
)
def test_the_request_is_what_hami_guarantees_and_limits(share: GpuShare, memory: int, expected: Json) -> None:
    assert hami_share(share, memory) == {GPU: "1", **expected}


@given(st.lists(st.integers(10, 1000), max_size=60), st.integers(1, 200 * 1024))
def test_hami_has_room_for_what_fits_on_a_gpu(requests: list[int], mib: int) -> None:
    fitting: list[int] = []
    for request in requests:
        if sum(fitting) + request <= 1000 and mib * request >= 1000:
            fitting.append(request)
    amounts = [hami_share(GpuShare(request=each, limit=1000), mib * 2**20) for each in fitting]

    assert sum(int(each[CORES]) for each in amounts) <= 100
    assert sum(int(each[MEMORY]) for each in amounts) <= mib
    assert all(int(each[CORES]) > 0 and int(each[MEMORY]) > 0 for each in amounts)


# -------------------------------------------------------------------------------------------------------------- the pod

KUBESHARE = {"kubeshare/gpu_request": "0.25", "kubeshare/gpu_limit": "1", "kubeshare/gpu_mem": str(2 * GI)}


def test_a_share_goes_to_the_main_container() -> None:
    found = with_hami_gpus(pod({"name": "side"}, {"name": "main"}, annotations=KUBESHARE), 3, ONE, "main")

    assert limits(found) == {}
    assert limits(found, 1) == {GPU: "1", CORES: "25", MEMORY: "2048"}
    assert found["metadata"]["annotations"] == {
        **KUBESHARE,
        "tarragon.dev/vgpu": "3",
        "tarragon.dev/gpu-uuid": A,
        "nvidia.com/use-gpuuuid": A,
    }
    assert found["spec"]["schedulerName"] == "hami-scheduler"


def test_a_share_in_the_labels_of_kubeshare_2_becomes_resources_too() -> None:
    body = pod(container(cpu=1))
    body["metadata"]["labels"] = {"sharedgpu/gpu_limit": "1.0", "sharedgpu/gpu_request": "0.5"}

    assert limits(with_hami_gpus(body, 0, ONE, "c")) == {"nvidia.com/cpu": 1, GPU: "1", CORES: "50", MEMORY: "8192"}


def test_resources_of_hami_are_replaced_in_the_container_that_has_them() -> None:
    asking = container("side", gpu=1, gpucores=30, **{"gpumem-percentage": 50})
    asking["resources"]["requests"] = {"cpu": "1", "nvidia.com/gpucores": 30}
    found = with_hami_gpus(pod({"name": "main"}, asking), 0, ONE, "main")

    assert limits(found) == {}
    assert found["spec"]["containers"][1]["resources"] == {
        "limits": {GPU: "1", CORES: "50", MEMORY: "8192"},
        "requests": {"cpu": "1"},
    }
    assert found["metadata"]["annotations"]["kubeshare/gpu_request"] == "0.5"


def test_whole_gpus_are_whole_whatever_hami_gives_by_default() -> None:
    two = ChosenGpus(uuids=(A, B), memory=16 * GI)
    body = pod(container("a", gpu="1"), {"name": "b"}, container("c", gpu="0"), initContainers=[container("i", gpu=2)])
    found = with_hami_gpus(body, None, two, "a")

    assert limits(found) == {GPU: "1", CORES: "100", PERCENTAGE: "100"}
    assert (limits(found, 1), limits(found, 2)) == ({}, {GPU: "0"})
    assert limits(found, 0, "initContainers") == {GPU: 2, CORES: "100", PERCENTAGE: "100"}
    assert found["metadata"]["annotations"] == {
        "tarragon.dev/gpu-uuid": f"{A},{B}",
        "nvidia.com/use-gpuuuid": f"{A},{B}",
    }


def test_what_hami_has_written_on_another_pod_does_not_come_along() -> None:
    copied = {
        "hami.io/vgpu-node": "m",
        "hami.io/vgpu-devices-allocated": f"{B},NVIDIA,1,1:;",
        "hami.io/bind-phase": "success",
        "nvidia.com/use-gpuuuid": B,
        "nvidia.com/nouse-gpuuuid": A,
        "nvidia.com/use-gputype": "A10",
        "hami.io/node-scheduler-policy": "spread",
    }
    found = with_hami_gpus(pod(container(gpu=1), annotations=copied), None, ONE, "c")

    assert found["metadata"]["annotations"] == {
        "tarragon.dev/gpu-uuid": A,
        "nvidia.com/use-gpuuuid": A,
        "nvidia.com/use-gputype": "A10",
        "hami.io/node-scheduler-policy": "spread",
    }


def test_the_number_of_whole_gpus_is_what_the_pod_takes_from_its_node() -> None:
    assert whole_gpus({}) == 0
    assert whole_gpus(pod()["spec"]) == 0
    assert whole_gpus(pod(container(gpu=1), container("d", gpu="2"))["spec"]) == 3
    assert whole_gpus(pod(container(gpu=1), initContainers=[container("i", gpu=4)])["spec"]) == 4
    assert whole_gpus(pod({"name": "c", "resources": {"requests": {GPU: 2}}})["spec"]) == 2


# -------------------------------------------------------------------------------------------------------------- the job


def admitted(place: str, settings: OperatorSettings | None = None, **template: Any) -> World:
    job = manifest({"Worker": 1})
    worker = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    worker["metadata"] = {"annotations": template.pop("annotations", {})}
    worker["spec"]["containers"][0]["resources"] = {"limits": template.pop("limits", {})}
    worker["spec"] |= template
    world = World(job, settings)
    world.settle()
    nodes = {Replica(WORKER, 0): place}
    world.write_admission(Admission(queued_at=world.now, admitted_at=world.now, size={WORKER: 1}, nodes=nodes))
    return world


def created(world: World) -> Json:
    world.settle()
    (found,) = world.pods.values()
    spec: Json = found["spec"]
    return spec | {"annotations": found["metadata"].get("annotations", {})}


@pytest.mark.parametrize("placement", list(Placement))
def test_hami_binds_the_pod_to_the_node_that_tarragon_has_chosen(placement: Placement) -> None:
    asked: list[GpuDemand] = []

    def find(demand: GpuDemand) -> ChosenGpus:
        asked.append(demand)
        return ONE

    world = admitted("n/0", OperatorSettings(placement=placement), annotations=KUBESHARE, schedulerName="tarragon")
    world.find_gpus = find
    spec = created(world)

    assert "nodeName" not in spec
    assert spec["schedulerName"] == "hami-scheduler"
    assert spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    ]
    assert {(str(demand.pod), demand.place, demand.whole) for demand in asked} == {("n1/dist-worker-0", "n/0", 0)}


def test_a_replica_with_whole_gpus_is_asked_for_with_their_number() -> None:
    world = admitted("n", limits={GPU: 2})
    asked: list[int] = []
    world.find_gpus = lambda demand: asked.append(demand.whole)
    spec = created(world)

    assert spec["nodeName"] == "n"
    assert set(asked) == {2}


def test_a_replica_without_gpus_is_not_asked_for() -> None:
    world = admitted("n")

    def fail(demand: GpuDemand) -> None:
        raise AssertionError(demand)

    world.find_gpus = fail
    assert created(world)["nodeName"] == "n"


def test_a_replica_waits_until_a_gpu_is_free_and_its_job_says_so() -> None:
    world = admitted("n", limits={GPU: 1})
    world.find_gpus = lambda _: GpuWait(message="node n has 0 GPUs", is_rejected=True)
    step = world.settle()
    assert not world.pods
    assert step.requeue_at is not None
    assert (step.requeue_at - world.now).total_seconds() == 5

    world.pass_time(30)
    world.settle()
    found = world.status.condition("Blocked")
    assert found is not None
    assert (found.reason, found.message) == ("GpuNotFree", "worker-0 waits: node n has 0 GPUs")

    world.find_gpus = lambda _: ONE
    assert created(world)["schedulerName"] == "hami-scheduler"


def test_a_job_says_when_the_scheduler_of_hami_takes_no_pods() -> None:
    world = admitted("n", limits={GPU: 1})
    world.find_gpus = lambda _: ONE
    created(world)
    world.pass_time(301)
    world.settle()

    found = world.status.condition("Stalled")
    assert found is not None
    assert found.message == "worker-0: no scheduler has considered the pod; is hami-scheduler running?"


def test_jobs_of_other_schedulers_are_left_as_they_are() -> None:
    job = manifest({"Worker": 1})
    worker = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    worker["spec"] |= {"schedulerName": "hami-scheduler"}
    worker["spec"]["containers"][0]["resources"] = {"limits": {GPU: 1, MEMORY: 100}}
    world = World(job)
    world.find_gpus = lambda _: ONE
    spec = created(world)

    assert spec["schedulerName"] == "hami-scheduler"
    assert spec["containers"][0]["resources"]["limits"] == {GPU: 1, MEMORY: 100}
    assert "nvidia.com/use-gpuuuid" not in spec["annotations"]


def test_a_pod_needs_what_its_place_has() -> None:
    key = Key("d", "p")
    whole = pod(container(gpu=2))["spec"]

    assert gpu_demand(key, "n", pod()["spec"]) is None
    assert gpu_demand(key, "n", whole) == GpuDemand(pod=key, place="n", whole=2)
    assert gpu_demand(key, "n/1", pod()["spec"]) == GpuDemand(pod=key, place="n/1")
