"""Which GPUs HAMi may give to new pods: all pods of a vGPU get one, and nobody else gets that."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tarragon.kube.meta import Key
from tarragon.kube.scheduling.hami import HamiGpu
from tarragon.plan.lifecycle.hami_gpus import GpuHolder, choose_gpus, holder_of
from tarragon.plan.objects.vgpus import ChosenGpus, GpuDemand, GpuWait

GI = 2**30


def gpu(letter: str, numa: int = 0, memory: int = 24) -> HamiGpu:
    return HamiGpu(uuid=f"GPU-{letter}", memory=memory * GI, is_healthy=True, numa=numa)


def share(number: int, pod: str = "p") -> GpuDemand:
    return GpuDemand(pod=Key("d", pod), place=f"n/{number}")


def whole(count: int, pod: str = "p") -> GpuDemand:
    return GpuDemand(pod=Key("d", pod), place="n", whole=count)


def held(name: str, *letters: str, is_foreign: bool = False) -> GpuHolder:
    return GpuHolder(name, frozenset(f"GPU-{letter}" for letter in letters), is_foreign)


def chosen(found: ChosenGpus | GpuWait) -> str:
    """The last letters of the GPUs, or the message."""
    return "".join(uuid[-1] for uuid in found.uuids) if isinstance(found, ChosenGpus) else found.message


FOUR = [gpu("a"), gpu("b"), gpu("c"), gpu("d")]


def test_a_vgpu_keeps_the_gpu_that_its_pods_have() -> None:
    assert chosen(choose_gpus(share(0), FOUR, [held("n/1", "a"), held("n/0", "c")])) == "c"
    assert chosen(choose_gpus(share(2), FOUR, [held("n/1", "a"), held("n/0", "c")])) == "b"


def test_nobody_else_gets_the_gpu_of_a_vgpu_or_of_a_pod() -> None:
    others = [held("n/0", "a"), held("d/x", "b", "c")]

    assert chosen(choose_gpus(share(1), FOUR, others)) == "d"
    assert chosen(choose_gpus(whole(1), FOUR, others)) == "d"
    found = choose_gpus(whole(2), FOUR, others)
    assert found == GpuWait(
        message="node n has 1 GPUs that no pod has, by HAMi's annotations; 2 are needed", is_rejected=True
    )


def test_a_pod_keeps_what_was_chosen_for_it_unless_hami_has_given_it_away() -> None:
    before = held("d/p", "b")

    assert chosen(choose_gpus(whole(1), FOUR, [before])) == "b"
    assert chosen(choose_gpus(whole(1), FOUR, [before, held("d/x", "b", is_foreign=True)])) == "a"
    assert chosen(choose_gpus(whole(1), FOUR[:1], [before])) == "a"
    assert chosen(choose_gpus(whole(2), FOUR, [before])) == "ab"


def test_a_vgpu_keeps_its_gpu_although_hami_has_put_others_there() -> None:
    assert chosen(choose_gpus(share(0), FOUR, [held("n/0", "a"), held("d/x", "a", is_foreign=True)])) == "a"
    assert chosen(choose_gpus(share(1), FOUR, [held("n/0", "a"), held("d/x", "b", is_foreign=True)])) == "c"


def test_a_vgpu_whose_gpu_is_lost_or_not_its_own_gets_no_more_pods() -> None:
    ended = "; others can start there when these have ended"
    lost = choose_gpus(share(0), FOUR[1:], [held("n/0", "a")])
    double = choose_gpus(share(0), FOUR, [held("n/0", "a"), held("n/1", "a")])
    several = choose_gpus(share(0), FOUR, [held("n/0", "a"), held("n/0", "b")])

    assert chosen(lost) == f"vGPU 0 of node n has lost its GPU GPU-a, which pods still use{ended}"
    assert chosen(double) == f"vGPU 0 of node n has the GPU GPU-a, which pods at another place have, too{ended}"
    assert chosen(several) == f"vGPU 0 of node n has pods on several GPUs, GPU-a and GPU-b{ended}"
    assert all(isinstance(found, GpuWait) and found.is_problem for found in (lost, double, several))


def test_gpus_come_from_one_numa_node_if_one_has_enough() -> None:
    uneven = [gpu("a", 0), gpu("b", 0), gpu("c", 0), gpu("d", 1), gpu("e", 1)]

    assert chosen(choose_gpus(whole(2), uneven, [])) == "de"
    assert chosen(choose_gpus(whole(3), uneven, [])) == "abc"
    assert chosen(choose_gpus(whole(4), uneven, [])) == "abcd"
    assert chosen(choose_gpus(share(0), uneven, [])) == "d"


def test_the_memory_is_that_of_the_smallest_gpu_as_the_scheduler_counts() -> None:
    found = choose_gpus(share(0), [gpu("a", memory=24), gpu("b", memory=16)], [])

    assert isinstance(found, ChosenGpus)
    assert found.memory == 16 * GI


@dataclass
class _Pod:
    demand: GpuDemand
    gpus: frozenset[str] = field(default_factory=frozenset)


class Choices(RuleBasedStateMachine):
    """Pods come and go at random, of ours and of others, and GPUs fail and recover."""

    def __init__(self) -> None:
        super().__init__()
        self.all = [gpu(letter, numa) for letter, numa in zip("abcd", (0, 0, 1, 1), strict=True)]
        self.healthy = {each.uuid for each in self.all}
        self.ours: dict[str, _Pod] = {}
        self.foreign: dict[str, frozenset[str]] = {}
        self.number = 0

    def holders(self) -> list[GpuHolder]:
        ours = [GpuHolder(holder_of(pod.demand), pod.gpus) for pod in self.ours.values()]
        return ours + [GpuHolder(f"f/{name}", gpus, is_foreign=True) for name, gpus in self.foreign.items()]

    def come(self, make: GpuDemand) -> None:
        gpus = [each for each in self.all if each.uuid in self.healthy]
        found = choose_gpus(make, gpus, self.holders())
        if isinstance(found, ChosenGpus):
            assert len(set(found.uuids)) == len(found.uuids) == (make.whole or 1)
            assert set(found.uuids) <= self.healthy
            assert (
                choose_gpus(make, gpus, [*self.holders(), GpuHolder(holder_of(make), frozenset(found.uuids))]) == found
            )
            self.ours[make.pod.name] = _Pod(make, frozenset(found.uuids))

    @rule(number=st.integers(0, 3))
    def a_share_comes(self, number: int) -> None:
        self.number += 1
        self.come(share(number, f"p{self.number}"))

    @rule(count=st.integers(1, 3))
    def whole_gpus_come(self, count: int) -> None:
        self.number += 1
        self.come(whole(count, f"p{self.number}"))

    @rule(letter=st.sampled_from("abcd"))
    def hami_puts_a_pod_of_others_where_it_likes(self, letter: str) -> None:
        self.number += 1
        self.foreign[f"p{self.number}"] = frozenset({f"GPU-{letter}"})

    @rule(which=st.integers(0, 30))
    def a_pod_leaves(self, which: int) -> None:
        names = [*self.ours, *self.foreign]
        if names:
            name = names[which % len(names)]
            self.ours.pop(name, None)
            self.foreign.pop(name, None)

    @rule(letter=st.sampled_from("abcd"))
    def a_gpu_fails_or_recovers(self, letter: str) -> None:
        self.healthy ^= {f"GPU-{letter}"}

    @invariant()
    def no_gpu_is_given_to_two(self) -> None:
        by_gpu: dict[str, set[str]] = {}
        for pod in self.ours.values():
            for uuid in pod.gpus:
                by_gpu.setdefault(uuid, set()).add(holder_of(pod.demand))
        assert all(len(names) == 1 for names in by_gpu.values()), by_gpu
        of_vgpus: dict[str, set[str]] = {}
        for pod in self.ours.values():
            if not pod.demand.whole:
                of_vgpus.setdefault(pod.demand.place, set()).update(pod.gpus)
        assert all(len(gpus) == 1 for gpus in of_vgpus.values()), of_vgpus


TestChoices = Choices.TestCase
TestChoices.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


@given(st.permutations(FOUR), st.permutations([held("n/0", "b"), held("d/x", "c"), held("d/y", "d", is_foreign=True)]))
def test_the_order_of_holders_does_not_matter(gpus: list[HamiGpu], holders: list[GpuHolder]) -> None:
    assert chosen(choose_gpus(share(0), gpus, holders)) == "b"
    assert chosen(choose_gpus(share(1), gpus, holders)) == "a"
