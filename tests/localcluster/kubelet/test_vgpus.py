"""Pods that share GPUs, as a node admits them: vGPUs and their GPUs, and what is refused."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.devices.vgpus import VgpuPart, part_text
from tarragon.localcluster.kubelet.pod.admission import NodeAllocations
from tarragon.localcluster.kubelet.pod.records import PodRecord
from tarragon.localcluster.kubelet.pod.status import PodFailure
from tests.localcluster.kubelet.builders import container_json, pod
from tests.localcluster.kubelet.gpu_pods import GI, sharing

GPU = "nvidia.com/gpu"
CARDS = ("GPU-a", "GPU-b", "GPU-c")
CARD_MEMORY = 16 * GI


def node_of(*gpus: str, memory: int = CARD_MEMORY) -> NodeAllocations:
    capacity = {"pods": 10**9, GPU: len(gpus) * 1000}
    return NodeAllocations(capacity, (), {GPU: gpus}, memory)


def whole(name: str, count: int = 1) -> Pod:
    return pod(name, container_json(resources={"limits": {GPU: count}}))


def gpu_of(answer: object, container: str = "main") -> str:
    """The one GPU that a container was given."""
    assert isinstance(answer, dict), answer
    [gpu] = answer[container][GPU]
    return str(gpu)


def refusal(answer: object) -> str:
    assert isinstance(answer, PodFailure), answer
    return f"{answer.reason}: {answer.message}"


def test_pods_of_a_vgpu_share_its_gpu_and_another_vgpu_has_another() -> None:
    node = node_of(*CARDS)

    assert gpu_of(node.admit(sharing("one", 0.5, vgpu=4), [])) == "GPU-a"
    assert gpu_of(node.admit(sharing("two", 0.5, vgpu=4), [])) == "GPU-a"
    assert gpu_of(node.admit(sharing("three", 0.1, vgpu=0), [])) == "GPU-b"


def test_all_containers_of_a_pod_see_its_gpu() -> None:
    inits = [container_json(name="init"), container_json(name="sidecar", restartPolicy="Always")]
    described = sharing("p", 0.5, container_json(), container_json(name="second"), initContainers=inits)

    answer = node_of(*CARDS).admit(described, [])

    assert {gpu_of(answer, name) for name in ("main", "second", "init", "sidecar")} == {"GPU-a"}


def test_whole_and_shared_gpus_stay_apart() -> None:
    node = node_of(*CARDS[:2])

    assert gpu_of(node.admit(whole("whole"), [])) == "GPU-a"
    assert gpu_of(node.admit(sharing("one", 0.2, vgpu=0), [])) == "GPU-b"
    assert refusal(node.admit(whole("second"), [])).startswith("OutOfnvidia.com/gpu: ")
    assert refusal(node.admit(sharing("two", 0.2, vgpu=1), [])) == (
        "OutOfnvidia.com/gpu: Pod was rejected: no GPU is free for vGPU 1, requested: 0.2"
    )


def test_a_gpu_is_free_again_when_the_last_pod_of_its_vgpu_has_left() -> None:
    node = node_of("GPU-a")
    for name in ("one", "two"):
        node.admit(sharing(name, 0.5, vgpu=0), [])
    node.release("uid-of-one")
    early = node.admit(whole("early"), [])
    node.release("uid-of-two")

    assert isinstance(early, PodFailure)
    assert gpu_of(node.admit(whole("late"), [])) == "GPU-a"


def test_a_gpu_that_is_shared_cannot_be_requested_by_name() -> None:
    node = node_of(*CARDS)
    node.admit(sharing("one", 0.5, vgpu=7), [])

    assert refusal(node.admit(whole("p"), ["GPU-a"])) == (
        "UnexpectedAdmissionError: Allocate failed due to GPU-a, which is vGPU 7: shared by other pods"
    )


def test_a_gpu_requested_by_name_is_not_shared_with_a_vgpu() -> None:
    node = node_of(*CARDS)
    node.admit(whole("p"), ["GPU-a"])

    assert gpu_of(node.admit(sharing("one", 0.5, vgpu=0), [])) == "GPU-b"


def test_a_pod_that_is_admitted_again_counts_once() -> None:
    node = node_of("GPU-a")

    assert [gpu_of(node.admit(sharing("one", 0.6, vgpu=0), [])) for _ in range(2)] == ["GPU-a", "GPU-a"]
    node.release("uid-of-one")
    assert [gpu_of(node.admit(whole("whole"), [])) for _ in range(2)] == ["GPU-a", "GPU-a"]


def test_more_than_a_whole_gpu_is_refused() -> None:
    node = node_of(*CARDS)
    node.admit(sharing("one", 0.5, vgpu=0), [])

    assert refusal(node.admit(sharing("two", 0.6, vgpu=0), [])) == (
        "OutOfnvidia.com/gpu: Pod was rejected: vGPU 0 (GPU GPU-a) does not have enough left, "
        "requested: 0.6, used: 0.5, capacity: 1"
    )


def test_more_than_the_memory_of_the_gpu_is_refused() -> None:
    node = node_of(*CARDS)
    node.admit(sharing("one", 0.1, memory=12 * GI, vgpu=0), [])

    assert refusal(node.admit(sharing("two", 0.1, memory=5 * GI, vgpu=0), [])) == (
        "OutOfnvidia.com/gpu: Pod was rejected: vGPU 0 (GPU GPU-a) does not have enough memory left, "
        "requested: 5Gi, used: 12Gi, capacity: 16Gi"
    )
    assert refusal(node.admit(sharing("three", 0.1, memory=17 * GI, vgpu=1), [])).endswith("capacity: 16Gi")
    assert gpu_of(node.admit(sharing("four", 0.1, memory=4 * GI, vgpu=0), [])) == "GPU-a"


def test_a_share_without_an_amount_of_memory_takes_its_part_of_it() -> None:
    node = node_of("GPU-a")
    node.admit(sharing("one", 0.5, vgpu=0), [])

    assert isinstance(node.admit(sharing("two", 0.1, memory=9 * GI, vgpu=0), []), PodFailure)
    assert gpu_of(node.admit(sharing("three", 0.1, memory=8 * GI, vgpu=0), [])) == "GPU-a"


def test_memory_is_not_limited_on_gpus_of_unknown_memory() -> None:
    node = node_of("GPU-a", memory=0)

    assert gpu_of(node.admit(sharing("one", 0.5, memory=100 * GI, vgpu=0), [])) == "GPU-a"
    assert gpu_of(node.admit(sharing("two", 0.5, vgpu=0), [])) == "GPU-a"


@pytest.mark.parametrize("number", ["first", "-1", "", "1.0", "٣"])
def test_an_annotation_that_is_not_the_number_of_a_vgpu_is_refused(number: str) -> None:
    assert refusal(node_of("GPU-a").admit(sharing("p", 0.5, vgpu=number), [])) == (
        "UnexpectedAdmissionError: Allocate failed due to annotation tarragon.dev/vgpu must be the number of a vGPU, "
        f"not {number!r}"
    )


def test_a_node_without_gpus_refuses_shares() -> None:
    node = NodeAllocations({"pods": 9000}, (), {})

    assert refusal(node.admit(sharing("p", 0.5), [])).startswith("OutOfnvidia.com/gpu: ")


def test_the_kubelet_chooses_the_vgpu_with_least_left_for_a_pod_without_a_scheduler() -> None:
    node = node_of(*CARDS)
    node.admit(sharing("full", 0.9, vgpu=0), [])
    node.admit(sharing("half", 0.5, vgpu=1), [])

    assert gpu_of(node.admit(sharing("small", 0.1), [])) == "GPU-a"
    assert gpu_of(node.admit(sharing("middle", 0.4), [])) == "GPU-b"
    assert gpu_of(node.admit(sharing("large", 0.3), [])) == "GPU-c"
    assert [node.vgpus.part_of(f"uid-of-{name}") for name in ("none", "full")] == [
        None,
        VgpuPart(pod="default/full", number=0, device="GPU-a", request=900, limit=1000, memory=CARD_MEMORY * 9 // 10),
    ]


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ({}, {}, True),
        ({"GPUID": "abcde"}, {"GPUID": "abcde"}, True),
        ({}, {"GPUID": "abcde"}, False),
        ({"sched_affinity": "x"}, {"sched_affinity": "x"}, True),
        ({}, {"sched_affinity": "x"}, False),
        ({"sched_anti-affinity": "x"}, {"sched_anti-affinity": "x"}, False),
        ({"sched_anti-affinity": "x"}, {"sched_anti-affinity": "y"}, True),
        ({"sched_exclusion": "x"}, {"sched_exclusion": "x"}, True),
        ({"sched_exclusion": "x"}, {}, False),
        ({}, {"sched_exclusion": "x"}, False),
    ],
)
def test_the_kubelet_chooses_by_the_rules_of_kubeshare(
    first: dict[str, str], second: dict[str, str], *, is_same: bool
) -> None:
    node = node_of(*CARDS)
    gpus = [gpu_of(node.admit(sharing(name, 0.1, **rules), [])) for name, rules in (("1", first), ("2", second))]

    assert (gpus[0] == gpus[1]) is is_same


def test_hami_s_resources_are_a_share_and_not_looked_for_on_the_node() -> None:
    limits = {GPU: 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    node = node_of("GPU-a")

    assert gpu_of(node.admit(pod("one", container_json(resources={"limits": limits})), [])) == "GPU-a"
    assert gpu_of(node.admit(pod("two", container_json(resources={"limits": limits})), [])) == "GPU-a"


def test_a_node_shows_who_holds_what_of_its_vgpus() -> None:
    node = node_of(*CARDS)
    before = node.vgpus.table()
    node.admit(sharing("two", 0.25, vgpu=1), [])
    node.admit(sharing("one", 0.5, vgpu=0), [])
    node.admit(sharing("three", 0.125, vgpu=1), [])

    table = str(node.vgpus.table())
    assert before is None
    assert json.loads(table) == {
        "0": {"gpu": "GPU-b", "pods": {"default/one": 500}},
        "1": {"gpu": "GPU-a", "pods": {"default/three": 125, "default/two": 250}},
    }
    assert [line.split()[-1] for line in table.splitlines() if "default/" in line] == ["500", "125,", "250"]


@pytest.mark.parametrize(
    ("request_", "memory", "of", "text"),
    [
        (500, 2_973_788_442 + 2**28, 16 * GI, "has 0.5 of GPU 1 (vGPU 0), 3.02Gi of 16Gi memory"),
        (1000, 16 * GI, 16 * GI, "has 1 of GPU 1 (vGPU 0), 16Gi of 16Gi memory"),
        (333, 512 * 2**20, 0, "has 0.333 of GPU 1 (vGPU 0), 512Mi memory"),
        (1, 0, 0, "has 0.001 of GPU 1 (vGPU 0)"),
    ],
)
def test_a_part_of_a_vgpu_in_words(request_: int, memory: int, of: int, text: str) -> None:
    part = VgpuPart(pod="default/p", number=0, device="1", request=request_, limit=1000, memory=memory)

    assert part_text(part, of, pretended=False) == text
    assert part_text(part, of, pretended=True) == f"{text} (pretended: this machine has no such device)"


# ------------------------------------------------------------------------------------------------ any sequence of pods


@dataclass
class Node:
    """A node and the records of its pods, from which a restarted kubelet knows what they hold."""

    allocations: NodeAllocations = field(default_factory=lambda: node_of(*CARDS))
    records: dict[str, PodRecord] = field(default_factory=dict)

    def arrives(self, described: Pod) -> PodFailure | None:
        uid = described.metadata.uid
        answer = self.allocations.admit(described, [])
        if isinstance(answer, PodFailure):
            return answer
        self.records[uid] = PodRecord(started=0, devices=answer, vgpu=self.allocations.vgpus.part_of(uid))
        return None

    def leaves(self, uid: str) -> None:
        del self.records[uid]
        self.allocations.release(uid)

    def restarts(self) -> None:
        self.allocations = node_of(*CARDS)
        for uid, record in self.records.items():
            needed = {} if record.vgpu else {GPU: 1000 * len(self.held_whole(record))}
            self.allocations.allocate(uid, {**needed, "pods": 1000}, record.all_devices, record.vgpu)

    @staticmethod
    def held_whole(record: PodRecord) -> list[str]:
        return [] if record.vgpu else [gpu for by_resource in record.devices.values() for gpu in by_resource[GPU]]

    @property
    def held(self) -> list[str]:
        return [gpu for record in self.records.values() for gpu in self.held_whole(record)]

    @property
    def parts(self) -> dict[int, list[VgpuPart]]:
        parts = defaultdict(list)
        for record in self.records.values():
            if record.vgpu:
                parts[record.vgpu.number].append(record.vgpu)
        return parts

    @property
    def free(self) -> int:
        return len(CARDS) - len(self.held) - len(self.parts)

    def has_room(self, number: int, request: int, memory: int) -> bool:
        parts = self.parts.get(number, [])
        return (
            (bool(parts) or self.free > 0)
            and sum(part.request for part in parts) + request <= 1000
            and sum(part.memory for part in parts) + memory <= CARD_MEMORY
        )

    def must_be_sound(self) -> None:
        shared = {(number, part.device) for number, parts in self.parts.items() for part in parts}
        used = [*self.held, *(device for _, device in shared)]
        assert len(shared) == len(self.parts), "each vGPU is one GPU"
        assert len(set(used)) == len(used), "no GPU is used twice"
        assert set(used) <= set(CARDS)
        for parts in self.parts.values():
            assert sum(part.request for part in parts) <= 1000
            assert sum(part.memory for part in parts) <= CARD_MEMORY


REQUESTS = st.sampled_from([1, 100, 250, 400, 500, 600, 1000])
MEMORIES = st.sampled_from([0, GI, 6 * GI, 16 * GI])
STEPS = st.one_of(
    st.tuples(st.just("whole"), st.integers(1, 3)),
    st.tuples(st.just("share"), st.none() | st.integers(0, 3), REQUESTS, MEMORIES),
    st.tuples(st.just("leave"), st.integers(0, 30)),
    st.just(("restart",)),
)


@given(st.lists(STEPS, max_size=30))
def test_no_sequence_of_pods_oversells_a_gpu_or_loses_one(steps: list[Any]) -> None:
    node = Node()
    for index, (kind, *details) in enumerate(steps):
        match kind, details:
            case "whole", [count]:
                has_room = count <= node.free
                assert (node.arrives(whole(f"p{index}", count)) is None) is has_room
            case "share", [number, request, memory]:
                size = memory or CARD_MEMORY * request // 1000
                candidates = range(5) if number is None else [number]
                has_room = any(node.has_room(each, request, size) for each in candidates)
                refused = node.arrives(sharing(f"p{index}", request / 1000, memory=memory, vgpu=number))
                assert (refused is None) is has_room
            case "leave", [position] if node.records:
                node.leaves(list(node.records)[position % len(node.records)])
            case "restart", []:
                node.restarts()
            case _:
                pass  # nobody is there to leave
        node.must_be_sound()

    for uid in list(node.records):
        node.leaves(uid)
    assert node.arrives(whole("all", 3)) is None
