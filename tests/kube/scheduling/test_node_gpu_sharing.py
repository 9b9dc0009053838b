"""How the GPUs of nodes are shared, by their labels and annotations."""

from __future__ import annotations

import pytest

from tarragon.kube.core import Node
from tarragon.kube.meta import ObjectMeta
from tarragon.kube.scheduling.gpu_shares import gpu_memory
from tarragon.kube.scheduling.node_gpu_sharing import GpuSharing, gpu_sharing, is_gpu_uuid, mps_pipe_directory

GI = 2**30


def node(annotations: dict[str, str] | None = None, **labels: str) -> Node:
    named = {f"tarragon.dev/{name.replace('_', '-')}": value for name, value in labels.items()}
    return Node(metadata=ObjectMeta(name="n", labels=named, annotations=annotations or {}))


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("kubelet", GpuSharing.KUBELET),
        ("anchor", GpuSharing.ANCHOR),
        ("none", GpuSharing.NONE),
        ("", GpuSharing.NONE),
        ("hami", GpuSharing.HAMI),
        ("HAMi", GpuSharing.NONE),
    ],
)
def test_the_label_says_how_gpus_are_shared(label: str, expected: GpuSharing) -> None:
    assert gpu_sharing(node(gpu_sharing=label)) is expected


def test_without_the_label_anchors_hold_the_gpus() -> None:
    assert gpu_sharing(node()) is GpuSharing.ANCHOR


def test_hami_shares_the_gpus_that_it_reports_unless_the_label_says_otherwise() -> None:
    hami = {"hami.io/node-nvidia-register": "[]"}

    assert gpu_sharing(node(hami)) is GpuSharing.HAMI
    assert gpu_sharing(node(hami, gpu_sharing="anchor")) is GpuSharing.ANCHOR


def test_a_node_with_mps_has_a_pipe_directory() -> None:
    elsewhere = {"tarragon.dev/mps-pipe-directory": "/run/nvidia/mps/pipe"}

    assert mps_pipe_directory(node()) == ""
    assert mps_pipe_directory(node(mps="false")) == ""
    assert mps_pipe_directory(node(elsewhere)) == ""
    assert mps_pipe_directory(node(mps="true")) == "/tmp/nvidia-mps"  # noqa: S108
    assert mps_pipe_directory(node(elsewhere, mps="true")) == "/run/nvidia/mps/pipe"


UUID = "4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"


@pytest.mark.parametrize("text", [f"GPU-{UUID}", f"MIG-{UUID}"])
def test_uuids_of_gpus_are_recognised(text: str) -> None:
    assert is_gpu_uuid(text)


@pytest.mark.parametrize("text", ["", "0", "all", "GPU-", "GPU-4cf8,GPU-5cf8", f"GPU-{UUID}\n", f"MIG-GPU-{UUID}/1/0"])
def test_other_texts_are_no_uuid(text: str) -> None:
    assert not is_gpu_uuid(text)


@pytest.mark.parametrize(
    ("value", "size"), [("16384", 16 * GI), ("", 0), ("16Gi", 0), ("-1", 0), ("1.5", 0), ("٣", 0), ("0", 0)]
)
def test_the_memory_of_gpus_is_the_number_of_a_label(value: str, size: int) -> None:
    assert gpu_memory({"nvidia.com/gpu.memory": value}) == size
    assert gpu_memory({}) == 0
