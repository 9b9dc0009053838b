"""The allocation of a machine's accelerators, and their visibility to containers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tarragon.base.gpu_constraints import GpuConstraints
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.devices.devices import (
    VENDORS,
    allocation_text,
    divide_devices,
    node_devices,
    visibility_variables,
)
from tarragon.localcluster.kubelet.devices.vgpus import VgpuPart
from tarragon.localcluster.kubelet.node.machine import MachineGpus, detect_gpus, read_gpus
from tarragon.localcluster.kubelet.pod.admission import NodeAllocations
from tarragon.localcluster.kubelet.pod.records import PodRecord, allocated_devices, load, save
from tarragon.localcluster.kubelet.pod.status import PodFailure
from tests.localcluster.kubelet.builders import container_json, pod

CARDS = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")


def asking(name: str, **amounts: Any) -> Any:
    return pod(name, container_json(resources={"limits": amounts}))


def test_a_container_without_devices_sees_none() -> None:
    assert visibility_variables({}, {"cpu"}) == {"CUDA_VISIBLE_DEVICES": "-1"}
    assert visibility_variables({}, {"amd.com/gpu"}) == {"CUDA_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1"}


def test_cuda_s_variable_does_not_hide_amd_devices() -> None:
    """HIP reads CUDA_VISIBLE_DEVICES too."""
    assert visibility_variables({"amd.com/gpu": ("2", "3")}, {"amd.com/gpu"}) == {"ROCR_VISIBLE_DEVICES": "2,3"}


@pytest.mark.parametrize("resource", sorted(VENDORS))
def test_each_vendor_s_devices_are_set_in_its_own_variables(resource: str) -> None:
    result = visibility_variables({resource: ("1", "3")}, {resource})

    assert {result[name] for name in VENDORS[resource].variables} == {"1,3"}


def test_devices_of_several_vendors_are_numbered_separately() -> None:
    capacity = {"pods": 9000, "nvidia.com/gpu": 2000, "amd.com/gpu": 2000, "example.com/fpga": 2000}
    node = NodeAllocations(capacity, (), node_devices(capacity, CARDS[:2]))

    assert node.admit(asking("p", **{"nvidia.com/gpu": 1, "amd.com/gpu": 2, "example.com/fpga": 1}), []) == {
        "main": {"nvidia.com/gpu": ("GPU-a",), "amd.com/gpu": ("0", "1")}
    }
    refused = node.admit(asking("q", **{"amd.com/gpu": 1}), [])
    assert isinstance(refused, PodFailure)
    assert refused.reason == "OutOfamd.com/gpu"
    node.release("uid-of-p")
    assert node.admit(asking("q", **{"amd.com/gpu": 1}), []) == {"main": {"amd.com/gpu": ("0",)}}


def test_the_devices_of_a_machine_are_divided_among_its_nodes() -> None:
    assert divide_devices({"x": 2, "y": 1}, CARDS, {}) == {"x": ("GPU-a", "GPU-b"), "y": ("GPU-c",)}
    with pytest.raises(ValueError, match="the nodes request 5 devices in all, but the machine has 4"):
        divide_devices({"x": 2, "y": 3}, CARDS, {})


def test_a_node_keeps_the_devices_of_its_pods_in_any_order_of_nodes() -> None:
    held = {"x": ["GPU-a"], "y": ["GPU-c"]}

    assert divide_devices({"y": 2, "x": 2}, CARDS, held) == {"y": ("GPU-b", "GPU-c"), "x": ("GPU-a", "GPU-d")}


def test_devices_held_by_a_removed_node_are_assigned_last() -> None:
    assert divide_devices({"x": 1}, CARDS, {"gone": ["GPU-a", "GPU-b"]}) == {"x": ("GPU-c",)}


def test_the_gpu_model_is_a_label_if_there_is_only_one() -> None:
    gpus = MachineGpus({"GPU-a": "NVIDIA A100-SXM4-40GB", "GPU-b": "Tesla T4"})

    assert gpus.labels(["GPU-a"]) == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
    assert gpus.labels(["GPU-a", "GPU-b"]) == gpus.labels([]) == {}


LISTED = """\
0, GPU-0a1b2c3d-0000-1111-2222-333344445555, NVIDIA H100 80GB HBM3, 81559
1, GPU-6d5e4f3a-0000-1111-2222-333344445555, Tesla T4, 15360
"""
H100, T4 = "GPU-0a1b2c3d-0000-1111-2222-333344445555", "GPU-6d5e4f3a-0000-1111-2222-333344445555"


def test_gpus_are_read_with_their_models_and_their_memory() -> None:
    found = read_gpus(LISTED, None)

    assert found.models == {H100: "NVIDIA H100 80GB HBM3", T4: "Tesla T4"}
    assert found.memory == {H100: 81559, T4: 15360}
    assert found.allowed == (H100, T4)
    assert read_gpus(LISTED, "1").allowed == (T4,)


def test_the_label_has_the_memory_of_the_smallest_gpu() -> None:
    found = read_gpus(LISTED, None)

    assert found.labels([H100]) == {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.memory": "81559",
    }
    assert found.labels([H100, T4]) == {"nvidia.com/gpu.memory": "15360"}


def test_a_gpu_without_memory_of_its_own_has_no_label_for_it() -> None:
    found = read_gpus(LISTED.replace("15360", "[N/A]"), None)

    assert found.labels([T4]) == {"nvidia.com/gpu.product": "Tesla-T4"}
    assert "nvidia.com/gpu.memory" not in found.labels([H100, T4])


@pytest.mark.parametrize(
    "listed",
    [
        "",
        "\n\n",
        "No devices were found\n",
        "0, GPU-xyz, Tesla T4, 15360\n",
        "0, MIG-0a1b2c3d, Tesla T4, 15360\n",
        "zero, GPU-0a1b, Tesla T4, 15360\n",
        "0, GPU-0a1b\n",
        "GPU 0: Tesla T4 (UUID: GPU-0a1b)\n",
        "\ufffd\x00,,,\n",
    ],
)
def test_other_text_of_nvidia_smi_is_no_gpu(listed: str) -> None:
    assert read_gpus(listed, None) == MachineGpus()


def test_lines_between_garbage_are_read() -> None:
    assert read_gpus(f"Warning: infoROM is corrupted\n{LISTED}[sudo]\n", None) == read_gpus(LISTED, None)


@pytest.mark.parametrize(
    ("script", "count"),
    [
        (f"cat <<'END'\n{LISTED}END", 2),
        (f"cat <<'END'\n{LISTED}END\nexit 9", 0),
        ("printf '\\377\\376'", 0),
    ],
)
def test_nvidia_smi_is_asked_for_the_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, count: int
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    assert len(detect_gpus({}).models) == count


def test_a_machine_without_nvidia_smi_has_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert detect_gpus({}) == MachineGpus()


def test_pretended_devices_are_reported_as_such() -> None:
    given = {"main": {"nvidia.com/gpu": ("0", "1")}}

    assert allocation_text(given, ()) == "container main has nvidia.com/gpu 0,1"
    assert allocation_text(given, {"nvidia.com/gpu"}).endswith("(pretended: this machine has no such device)")


def test_records_of_an_earlier_version_are_read() -> None:
    record = PodRecord(started=0.0, gpus={"main": ("GPU-a",)})

    assert record.all_devices == {"main": {"nvidia.com/gpu": ("GPU-a",)}}


def test_the_devices_of_a_node_s_pods_are_found_in_its_folder(tmp_path: Path) -> None:
    record = PodRecord(started=0.0, devices={"main": {"nvidia.com/gpu": ("GPU-b", "GPU-c")}})
    save(NodeFolder(tmp_path).pod("uid"), record)

    assert allocated_devices(tmp_path, "nvidia.com/gpu") == ["GPU-b", "GPU-c"]
    assert allocated_devices(tmp_path / "none", "nvidia.com/gpu") == []


def test_a_record_keeps_with_whom_a_pod_shares_its_gpu(tmp_path: Path) -> None:
    constraints = GpuConstraints(gpu_id="abcde", affinity="a", anti_affinity="b", exclusion="c")
    part = VgpuPart(pod="default/p", number=1, device="GPU-a", request=500, limit=1000, constraints=constraints)
    save(NodeFolder(tmp_path).pod("uid"), PodRecord(started=0.0, vgpu=part))

    found = load(NodeFolder(tmp_path).pod("uid"))
    assert found is not None
    assert found.vgpu == part
