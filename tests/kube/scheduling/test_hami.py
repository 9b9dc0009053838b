"""The GPUs that HAMi shares, as its annotations of nodes and pods name them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.base.resources import NVIDIA_GPU
from tarragon.kube.core import Container, Node, NodeStatus, Pod, PodSpec, ResourceRequirements
from tarragon.kube.meta import ObjectMeta
from tarragon.kube.scheduling.gpu_shares import GpuShare, share_of
from tarragon.kube.scheduling.hami import HamiGpu, gpus_of_pod, hami_gpus, node_gpu_memory
from tarragon.kube.scheduling.node_resources import allocatable_with_gpus, node_allocatable
from tarragon.kube.scheduling.vgpu_requests import pod_request

A, B = "GPU-aaaa0000-06c0-7d70-1a51-e59b25b2c16c", "GPU-bbbb0000-06c0-7d70-1a51-e59b25b2c16c"
MIB = 2**20
REGISTER, CHOSEN = "hami.io/node-nvidia-register", "hami.io/vgpu-devices-allocated"
FIRST = {
    "id": A,
    "count": 10,
    "devmem": 24576,
    "devcore": 100,
    "type": "NVIDIA-A10",
    "mode": "hami-core",
    "health": True,
}


def node(text: str, **labels: str) -> Node:
    """A node whose device plugin offers each of four GPUs ten times."""
    named = {"nvidia.com/gpu.memory": "1024", **{f"tarragon.dev/{name}": value for name, value in labels.items()}}
    metadata = ObjectMeta(name="n", labels=named, annotations={REGISTER: text})
    return Node(metadata=metadata, status=NodeStatus(allocatable={"cpu": "8", NVIDIA_GPU: "40"}))


def listed(*gpus: dict[str, Any]) -> str:
    return json.dumps([{**FIRST, **gpu} for gpu in gpus])


def test_both_forms_of_the_annotation_are_read() -> None:
    expected = (
        HamiGpu(uuid=A, memory=24576 * MIB, is_healthy=True, numa=0),
        HamiGpu(uuid=B, memory=16384 * MIB, is_healthy=True, numa=1),
    )
    older = f"{A},10,24576,100,NVIDIA-NVIDIA A10,0,true:{B},10,16384,100,NVIDIA-NVIDIA A10,1,true:"
    old = (
        f"{A},10,24576,100,NVIDIA-NVIDIA A10,0,true,0,hami-core:{B},10,16384,100,NVIDIA-NVIDIA A10,1,true,1,hami-core:"
    )

    assert hami_gpus(node(listed({}, {"id": B, "devmem": 16384, "numa": 1, "index": 1}))) == expected
    assert hami_gpus(node(older)) == expected
    assert hami_gpus(node(old)) == expected


def test_gpus_with_a_fault_and_those_divided_by_mig_are_left_out() -> None:
    without_health = {name: value for name, value in FIRST.items() if name != "health"}

    assert hami_gpus(node(listed({}, {"id": B, "health": False}))) == hami_gpus(node(listed({})))
    assert hami_gpus(node(json.dumps([without_health]))) == ()  # HAMi leaves out what is false
    assert hami_gpus(node(listed({"mode": "mig"}))) == ()
    assert hami_gpus(node(f"{A},10,24576,100,NVIDIA,0,false:{B},10,24576,100,NVIDIA,0,true,1,mig:")) == ()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "[", "[1]", "{}", "null", ":", ",,,,,,", "a,b:c", f"{A},10", '[{"id": "0", "health": true}]', "[[]]"],
)
def test_what_can_not_be_read_is_no_gpu(text: str) -> None:
    assert hami_gpus(node(text)) == ()


@pytest.mark.parametrize("memory", [10**9, 10**21, -1, True, 1.5, "1e3", {}])
def test_memory_that_no_gpu_has_is_not_known(memory: Any) -> None:
    (gpu,) = hami_gpus(node(listed({"devmem": memory})))

    assert gpu.memory == 0


@given(st.text() | st.from_regex(r"\[\{.*\}\]") | st.from_regex(r"GPU-[0-9a-f]{4},.*:"))
def test_no_annotation_is_an_error(text: str) -> None:
    assert all(gpu.memory >= 0 for gpu in hami_gpus(node(text)))
    assert gpus_of_pod({CHOSEN: text, "tarragon.dev/gpu-uuid": text}) is not None


def test_a_gpu_counts_once_however_often_the_device_plugin_offers_it() -> None:
    shared = node(listed({}, {"id": B, "devmem": 16384}, {"id": A}))
    other = node(listed({}), **{"gpu-sharing": "none"})

    assert allocatable_with_gpus(shared) == {"cpu": 8000, NVIDIA_GPU: 2000}
    assert allocatable_with_gpus(other) == node_allocatable(other) == {"cpu": 8000, NVIDIA_GPU: 40_000}
    assert allocatable_with_gpus(node("", **{"gpu-sharing": "hami"}))[NVIDIA_GPU] == 0


def test_a_node_whose_device_plugin_is_gone_has_no_gpus_although_the_annotation_stays() -> None:
    metadata = node(listed({}, {"id": B})).metadata

    for amounts in ({NVIDIA_GPU: "0"}, {}):
        status = NodeStatus(allocatable={"cpu": "8", **amounts})
        assert allocatable_with_gpus(Node(metadata=metadata, status=status))[NVIDIA_GPU] == 0


def test_the_memory_of_a_node_is_that_of_its_smallest_gpu() -> None:
    assert node_gpu_memory(node(listed({}, {"id": B, "devmem": 16384}))) == 16384 * MIB
    assert node_gpu_memory(node(listed({}), **{"gpu-sharing": "anchor"})) == 1024 * MIB
    assert node_gpu_memory(node("")) == 0


def test_a_pod_has_the_gpus_that_hami_has_chosen_and_those_that_it_may_have_only() -> None:
    two_containers = f"{A},NVIDIA,4096,50:;{B},NVIDIA,8192,100:;"

    assert gpus_of_pod({}) == frozenset()
    assert gpus_of_pod({CHOSEN: two_containers}) == {A, B}
    assert gpus_of_pod({CHOSEN: f"{A}[0-1],NVIDIA,4096,50:;"}) == {A}
    assert gpus_of_pod({CHOSEN: ":;:;"}) == frozenset()
    assert gpus_of_pod({"tarragon.dev/gpu-uuid": f"{A},{B}"}) == {A, B}
    assert gpus_of_pod({"tarragon.dev/gpu-uuid": A, CHOSEN: f"{B},NVIDIA,1,1:;"}) == {A, B}


def test_a_pod_with_a_vgpu_has_the_share_of_its_annotations_beside_the_resources_of_hami() -> None:
    limits: dict[str, str | int | float] = {NVIDIA_GPU: "1", "nvidia.com/gpucores": "33", "nvidia.com/gpumem": "100"}
    containers = [Container(name="c", resources=ResourceRequirements(limits=limits))]
    asked = {"kubeshare/gpu_request": "0.333", "kubeshare/gpu_limit": "1"}
    labels = {"sharedgpu/gpu_request": "0.333", "sharedgpu/gpu_limit": "1"}
    exact = GpuShare(request=333, limit=1000)

    assert share_of(asked, {}, containers) is None  # a template may not ask twice
    assert share_of({**asked, "tarragon.dev/vgpu": "0"}, {}, containers) == exact
    assert share_of({"tarragon.dev/vgpu": "0"}, labels, containers) == exact
    assert share_of({"tarragon.dev/vgpu": "0"}, {}, containers) == GpuShare(request=330, limit=330, memory=100 * MIB)


def test_a_pod_that_names_a_gpu_without_a_vgpu_has_no_share() -> None:
    limits: dict[str, str | int | float] = {NVIDIA_GPU: "1", "nvidia.com/gpucores": "100"}
    containers = [Container(name="c", resources=ResourceRequirements(limits=limits))]

    assert share_of({}, {}, containers) == GpuShare(request=1000, limit=1000)
    assert share_of({"tarragon.dev/gpu-uuid": A}, {}, containers) is None


@pytest.mark.parametrize("annotations", [{}, {"tarragon.dev/gpu-uuid": A}])
def test_a_pod_takes_gpus_from_its_node_and_no_resources_that_only_hami_counts(annotations: dict[str, str]) -> None:
    limits: dict[str, str | int | float] = {NVIDIA_GPU: "2", "nvidia.com/gpucores": "100", "nvidia.com/gpumem": "100"}
    spec = PodSpec(containers=[Container(name="c", resources=ResourceRequirements(limits=limits))])
    pod = Pod(metadata=ObjectMeta(name="p", annotations=annotations), spec=spec)

    assert pod_request(pod) == {NVIDIA_GPU: 2000, "pods": 1000}
