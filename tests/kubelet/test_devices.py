"""Who may use which accelerator of a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.devices.devices import VENDORS, offered, shared_out, told, variables
from tarragon.localcluster.kubelet.node.node import Gpus
from tarragon.localcluster.kubelet.pod.admission import Ledger
from tarragon.localcluster.kubelet.pod.records import PodRecord, devices_held, save
from tarragon.localcluster.kubelet.pod.status import Verdict
from tests.kubelet.builders import container_json, pod

CARDS = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")


def asking(name: str, **amounts: Any) -> Any:
    return pod(name, container_json(resources={"limits": amounts}))


def test_who_asks_for_none_sees_none() -> None:
    assert variables({}, {"cpu"}) == {"CUDA_VISIBLE_DEVICES": "-1"}
    assert variables({}, {"amd.com/gpu"}) == {"CUDA_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1"}


def test_amd_s_programs_are_not_kept_from_their_devices_by_nvidia_s_variable() -> None:
    """HIP heeds CUDA_VISIBLE_DEVICES as its own."""
    assert variables({"amd.com/gpu": ("2", "3")}, {"amd.com/gpu"}) == {"ROCR_VISIBLE_DEVICES": "2,3"}


@pytest.mark.parametrize("resource", sorted(VENDORS))
def test_each_vendor_s_devices_are_told_by_its_own_variables(resource: str) -> None:
    told = variables({resource: ("1", "3")}, {resource})

    assert {told[name] for name in VENDORS[resource].variables} == {"1,3"}


def test_devices_of_several_vendors_are_counted_each_for_itself() -> None:
    capacity = {"pods": 9000, "nvidia.com/gpu": 2000, "amd.com/gpu": 2000, "example.com/fpga": 2000}
    node = Ledger(capacity, (), offered(capacity, CARDS[:2]))

    assert node.admit(asking("p", **{"nvidia.com/gpu": 1, "amd.com/gpu": 2, "example.com/fpga": 1}), []) == {
        "main": {"nvidia.com/gpu": ("GPU-a",), "amd.com/gpu": ("0", "1")}
    }
    refused = node.admit(asking("q", **{"amd.com/gpu": 1}), [])
    assert isinstance(refused, Verdict)
    assert refused.reason == "OutOfamd.com/gpu"
    node.release("uid-of-p")
    assert node.admit(asking("q", **{"amd.com/gpu": 1}), []) == {"main": {"amd.com/gpu": ("0",)}}


def test_nodes_of_one_machine_share_its_devices_and_never_have_the_same() -> None:
    assert shared_out({"x": 2, "y": 1}, CARDS, {}) == {"x": ("GPU-a", "GPU-b"), "y": ("GPU-c",)}
    with pytest.raises(ValueError, match="they ask for 5 devices in all, and the machine has 4"):
        shared_out({"x": 2, "y": 3}, CARDS, {})


def test_a_node_keeps_the_devices_that_its_pods_have_in_whichever_order_nodes_are_named() -> None:
    held = {"x": ["GPU-a"], "y": ["GPU-c"]}

    assert shared_out({"y": 2, "x": 2}, CARDS, held) == {"y": ("GPU-b", "GPU-c"), "x": ("GPU-a", "GPU-d")}


def test_what_a_node_that_is_no_more_still_has_is_given_last() -> None:
    assert shared_out({"x": 1}, CARDS, {"gone": ["GPU-a", "GPU-b"]}) == {"x": ("GPU-c",)}


def test_the_model_is_a_label_where_there_is_one() -> None:
    gpus = Gpus({"GPU-a": "NVIDIA A100-SXM4-40GB", "GPU-b": "Tesla T4"})

    assert gpus.labels(["GPU-a"]) == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
    assert gpus.labels(["GPU-a", "GPU-b"]) == gpus.labels([]) == {}


def test_devices_that_the_machine_does_not_have_are_called_so() -> None:
    given = {"main": {"nvidia.com/gpu": ("0", "1")}}

    assert told(given, ()) == "container main has nvidia.com/gpu 0,1"
    assert told(given, {"nvidia.com/gpu"}).endswith("(this machine has none: the number is pretended)")


def test_what_an_earlier_version_has_written_down_is_still_known() -> None:
    record = PodRecord(started=0.0, gpus={"main": ("GPU-a",)})

    assert record.all_devices == {"main": {"nvidia.com/gpu": ("GPU-a",)}}


def test_what_the_pods_of_a_node_have_is_found_in_its_folder(tmp_path: Path) -> None:
    record = PodRecord(started=0.0, devices={"main": {"nvidia.com/gpu": ("GPU-b", "GPU-c")}})
    save(NodeFolder(tmp_path).pod("uid"), record)

    assert devices_held(tmp_path, "nvidia.com/gpu") == ["GPU-b", "GPU-c"]
    assert devices_held(tmp_path / "none", "nvidia.com/gpu") == []
