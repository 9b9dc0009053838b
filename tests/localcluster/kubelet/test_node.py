from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tarragon.localcluster.kubelet.node.machine import machine_capacity, visible_devices
from tarragon.localcluster.kubelet.pod.admission import NodeAllocations
from tarragon.localcluster.kubelet.pod.status import PodFailure
from tests.localcluster.kubelet.builders import container_json, pod

GI = 2**30 * 1000
FOUND = ["GPU-aa", "GPU-ab", "GPU-b"]


@pytest.mark.parametrize(
    ("allowed", "seen"),
    [
        (None, ("GPU-aa", "GPU-ab", "GPU-b")),
        ("", ()),
        ("-1", ()),
        ("0,2", ("GPU-aa", "GPU-b")),
        ("2, 0", ("GPU-b", "GPU-aa")),
        ("GPU-b", ("GPU-b",)),
        ("1,-1,2", ("GPU-ab",)),
        ("7", ()),
    ],
)
def test_only_visible_gpus_are_offered(allowed: str | None, seen: tuple[str, ...]) -> None:
    assert visible_devices(FOUND, allowed) == seen


def test_the_machine_offers_the_resources_available_to_this_process(tmp_path: Path) -> None:
    offered = machine_capacity(tmp_path / "not" / "yet", ("GPU-a",))

    assert offered["cpu"] >= 1000
    assert offered["memory"] >= 2**28 * 1000
    assert offered["nvidia.com/gpu"] == 1000
    assert offered["ephemeral-storage"] == shutil.disk_usage(tmp_path).total * 1000
    assert "nvidia.com/gpu" not in machine_capacity(tmp_path)


def asking(name: str, **amounts: Any) -> Any:
    return pod(
        name, container_json(resources={"limits": {key.replace("_", "/"): value for key, value in amounts.items()}})
    )


def ledger(*gpus: str) -> NodeAllocations:
    capacity = {"cpu": 4000, "memory": 8 * GI, "pods": 3000, "nvidia.com/gpu": len(gpus) * 1000}
    return NodeAllocations(capacity, {"cpu"}, {"nvidia.com/gpu": gpus})


def reason(answer: object) -> str:
    return answer.reason if isinstance(answer, PodFailure) else ""


def test_pods_are_admitted_until_the_memory_is_allocated() -> None:
    node = ledger()

    assert reason(node.admit(asking("a", memory="5Gi"), [])) == ""
    assert reason(node.admit(asking("b", memory="4Gi"), [])) == "OutOfmemory"
    node.release("uid-of-a")
    assert reason(node.admit(asking("b", memory="4Gi"), [])) == ""


def test_the_number_of_pods_is_limited() -> None:
    node = ledger()
    for name in "abc":
        node.admit(asking(name), [])

    assert reason(node.admit(asking("d"), [])) == "OutOfpods"


def test_a_pod_that_requests_an_unknown_resource_is_rejected() -> None:
    assert reason(ledger().admit(asking("a", **{"example.com_tpu": 1}), [])) == "OutOfexample.com/tpu"


def test_shared_resources_are_never_short() -> None:
    assert reason(ledger().admit(asking("a", cpu="20"), [])) == ""


def test_main_containers_get_separate_gpus_which_init_containers_use_before() -> None:
    one, two = {"resources": {"limits": {"nvidia.com/gpu": 1}}}, {"resources": {"limits": {"nvidia.com/gpu": 2}}}
    described = pod(
        "p",
        container_json(name="a", **one),
        container_json(name="b", **one),
        container_json(name="c"),
        initContainers=[container_json(name="i", **two)],
    )

    assert ledger("0", "1", "2").admit(described, []) == {
        "a": {"nvidia.com/gpu": ("0",)},
        "b": {"nvidia.com/gpu": ("1",)},
        "i": {"nvidia.com/gpu": ("0", "1")},
    }


def test_an_init_container_gets_other_gpus_than_a_running_sidecar() -> None:
    one = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    described = pod(
        "p",
        container_json(name="a", **one),
        initContainers=[
            container_json(name="before", **one),
            container_json(name="sidecar", restartPolicy="Always", **one),
            container_json(name="beside", **one),
        ],
    )

    assert ledger("0", "1").admit(described, []) == {
        "before": {"nvidia.com/gpu": ("0",)},
        "sidecar": {"nvidia.com/gpu": ("0",)},
        "beside": {"nvidia.com/gpu": ("1",)},
        "a": {"nvidia.com/gpu": ("1",)},
    }


def test_allocated_gpus_are_not_allocated_again() -> None:
    node = ledger("0", "1")
    node.allocate("before", {}, {"main": {"nvidia.com/gpu": ("0",)}})

    assert node.admit(asking("a", **{"nvidia.com_gpu": 1}), []) == {"main": {"nvidia.com/gpu": ("1",)}}
    assert reason(node.admit(asking("b", **{"nvidia.com_gpu": 1}), [])) in {
        "OutOfnvidia.com/gpu",
        "UnexpectedAdmissionError",
    }


def test_a_request_for_an_unknown_gpu_is_rejected() -> None:
    answer = ledger("0").admit(asking("a", **{"nvidia.com_gpu": 1}), ["9"])

    assert answer == PodFailure(
        reason="UnexpectedAdmissionError", message="Allocate failed due to 9: no such device on this node"
    )


def test_a_gpu_requested_by_name_may_be_shared() -> None:
    """A scheduler that allocates fractions of a GPU assigns one to several pods."""
    node = ledger("0", "1")
    requested = ["1"]

    assert node.admit(asking("a", **{"nvidia.com_gpu": 1}), requested) == {"main": {"nvidia.com/gpu": ("1",)}}
    assert node.admit(asking("b", **{"nvidia.com_gpu": 1}), requested) == {"main": {"nvidia.com/gpu": ("1",)}}
