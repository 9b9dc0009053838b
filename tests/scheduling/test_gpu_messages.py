"""What is told to those that wait for a part of a GPU, or for one that others share."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.base.resources import CPU, GPU_MEMORY, NVIDIA_GPU, WHOLE_GPU, Resources, subtract
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import CHIEF
from tarragon.job.model import Replica
from tarragon.scheduling.api.decision import INSUFFICIENT_RESOURCES, NEVER_FITS, NODES_UNAVAILABLE, WaitCause
from tarragon.scheduling.api.gpu_shares import HELD_BY_ANCHOR, VgpuShare
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.explain import gpu_shortage
from tarragon.scheduling.explain.node_gpus import NodeGpus, VgpuAmount, vgpu_amounts, with_fractions
from tarragon.scheduling.explain.reasons import WaitExplanation, explain_wait
from tarragon.scheduling.explain.wait_messages import insufficient_resources, minimum_resources
from tarragon.scheduling.policies.fifo import fifo
from tarragon.scheduling.state.gpus_left import GpusLeft
from tarragon.scheduling.state.ledger import NodeLedger
from tests.scheduling.rounds import GIB, gpus, shared_gpus
from tests.scheduling.scenes import afresh

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
HALF = VgpuShare(500)


def node(name: str, held: Mapping[int, VgpuShare] | None = None, away: str = "", **facts: int) -> NodeState:
    """`held` is what pods hold of its vGPUs, `whole` how many GPUs pods hold. Two GPUs with 16 GiB unless told
    otherwise.
    """
    memory = facts.get("memory", 16)
    capacity = {**shared_gpus(facts.get("count", 2), memory), CPU: facts.get("cpus", 8) * 1000}
    taken: dict[str, int] = {NVIDIA_GPU: facts.get("whole", 0) * 1000}
    for number, share in (held or {}).items():
        taken |= share.amounts(number, memory * GIB)
    return NodeState(name=name, capacity=capacity, free=subtract(capacity, taken), unavailable_reason=away)


def workers(
    count: int, share: VgpuShare | None = HALF, each: Resources | None = None, on: Sequence[str] = ("a", "b")
) -> Demand:
    resources = each or {}
    return Demand(
        type=WORKER,
        resources=resources if share is None else {**resources, NVIDIA_GPU: share.request},
        minimum=count,
        requested=count,
        eligible_nodes=frozenset(on),
        share=share,
    )


def snapshot(
    nodes: Sequence[NodeState], *demands: Demand, running: Sequence[RunningGang] = (), away: Sequence[NodeState] = ()
) -> Snapshot:
    waiting = WaitingGang(name="mine", queued_at=NOON, demands=demands)
    return Snapshot(now=NOON, nodes=nodes, waiting=[waiting], running=running, unavailable_nodes=away)


def told(nodes: Sequence[NodeState], *demands: Demand, away: Sequence[NodeState] = ()) -> tuple[str, str]:
    """The code and the message of a gang that waits for these demands."""
    (decision,) = afresh(fifo)(snapshot(nodes, *demands, away=away))
    return getattr(decision, "code", ""), getattr(decision, "message", str(decision))


def explained(nodes: Sequence[NodeState], *demands: Demand, running: Sequence[RunningGang] = ()) -> WaitExplanation:
    return explain_wait("mine", snapshot(nodes, *demands, running=running))


A = node("a", {0: VgpuShare(700), 1: VgpuShare(600)})
B = node("b", {0: VgpuShare(900)}, count=1)


def test_where_no_gpu_has_enough_left_it_is_told_how_much_the_best_has() -> None:
    assert told([A, B], workers(1)) == (
        INSUFFICIENT_RESOURCES,
        "no GPU has 0.5 left (most: 0.4 on vGPU 1 of node a)",
    )
    assert told([node("a", whole=2)], workers(1, on="a")) == (
        INSUFFICIENT_RESOURCES,
        "no GPU has 0.5 left: all are in use",
    )
    assert told([A, B], workers(1, VgpuShare(1000)))[1] == ("no whole GPU is left (most: 0.4 on vGPU 1 of node a)")


def test_of_many_nodes_none_is_named_because_that_would_change_with_every_pod() -> None:
    many = [node(f"n{index:02}", {0: VgpuShare(600)}, count=1) for index in range(21)]
    names = [each.name for each in many]

    assert told(many, workers(1, on=names))[1] == "no GPU has 0.5 left (most: 0.4)"
    assert told(many[:20], workers(1, on=names))[1] == "no GPU has 0.5 left (most: 0.4 on vGPU 0 of node n00)"


def test_only_nodes_that_may_run_it_count() -> None:
    assert told([A, B], workers(1, on="b"))[1] == "no GPU has 0.5 left (most: 0.1 on vGPU 0 of node b)"


def test_memory_that_others_hold_is_told_where_that_is_what_is_short() -> None:
    full = node("a", {0: VgpuShare(100, 13 * GIB), 1: VgpuShare(100, 10 * GIB)})

    assert told([full], workers(1, VgpuShare(100, 8 * GIB), on="a"))[1] == (
        "no GPU has 8Gi of memory left (most: 6Gi on vGPU 1 of node a)"
    )
    assert told([full], workers(1, HALF, on="a"))[1] == (
        "no GPU with 0.5 left has as large a part of its memory left (most: 6Gi on vGPU 1 of node a)"
    )


def test_a_gpu_with_the_memory_and_another_with_the_part_are_not_enough() -> None:
    apart = node("a", {0: VgpuShare(900, GIB), 1: VgpuShare(100, 13 * GIB)})

    assert told([apart], workers(1, VgpuShare(500, 8 * GIB), on="a"))[1] == (
        "no GPU with 0.5 left has 8Gi of memory left (most: 3Gi on vGPU 1 of node a)"
    )


def test_where_only_small_gpus_are_free_that_is_told() -> None:
    nodes = [node("a", count=1), node("b", count=1, memory=80, whole=1)]

    assert told(nodes, workers(1, VgpuShare(100, 40 * GIB)))[1] == (
        "no GPU has 40Gi of memory left (most: 16Gi on a free GPU of node a)"
    )


def test_where_some_replicas_have_room_it_is_told_for_how_many() -> None:
    nodes = [node("a", {0: VgpuShare(600)}), B]

    assert told(nodes, workers(3))[1] == "GPUs have room for 2 of 3 workers; no other GPU has 0.5 left"
    assert told(nodes, workers(2, VgpuShare(300, 12 * GIB)))[1] == (
        "GPUs have room for 1 of 2 workers; no other GPU has 0.3 and 12Gi of memory left"
    )


def test_what_else_is_short_is_told_as_well_and_alone_where_gpus_have_room() -> None:
    cpus = {CPU: 9000}
    nodes = [node("a", {0: HALF}, count=1, cpus=2), node("b", whole=1, count=1, cpus=8)]

    assert told(nodes, workers(2, each=cpus))[0] == NEVER_FITS
    nodes = [node("a", {0: HALF}, count=2), node("b", count=1)]
    busy = [NodeState(name=each.name, capacity=each.capacity, free={**each.free, CPU: 1000}) for each in nodes]
    assert told(busy, workers(1, each={CPU: 4000}))[1] == "the job needs 4 cpu; free: 2 cpu"
    assert told(busy, workers(6, each={CPU: 2000}))[1] == (
        "GPUs have room for 5 of 6 workers; no other GPU has 0.5 left; the job needs 12 cpu; free: 2 cpu"
    )


def test_a_whole_gpu_is_not_free_while_others_share_it() -> None:
    whole = workers(1, share=None, each=gpus(1))

    assert told([A, B], whole)[1] == "the job needs 1 nvidia.com/gpu; free: 0 nvidia.com/gpu and parts of others"
    assert told([node("a", whole=2)], workers(1, None, gpus(1), on="a"))[1] == (
        "the job needs 1 nvidia.com/gpu; free: 0 nvidia.com/gpu"
    )


def test_parts_and_whole_gpus_of_one_gang_count_together() -> None:
    chief = Demand(type=CHIEF, resources=gpus(1), minimum=1, requested=1, eligible_nodes=frozenset("a"))
    demands = [chief, workers(2, on="a")]
    ledger = NodeLedger.of_free([node("a", {1: HALF})])

    assert insufficient_resources(demands, minimum_resources(demands), ledger).message == (
        "the job needs 2 nvidia.com/gpu; free: 1.5 nvidia.com/gpu"
    )


def test_what_has_room_for_each_type_of_replicas_but_not_for_all_is_not_meant_for_others() -> None:
    chief = replace(workers(1, VgpuShare(100, 8 * GIB), on="a"), type=CHIEF)
    full = node("a", {0: VgpuShare(100, 2 * GIB)}, whole=1)

    assert told([full], chief, workers(1, VgpuShare(200, 8 * GIB), on="a")) == (
        INSUFFICIENT_RESOURCES,
        "the job needs 0.3 nvidia.com/gpu; there is room for each type of its replicas, but not for all of them",
    )
    alone = replace(workers(1, None, gpus(1), on="a"), type=CHIEF)
    assert told([node("a", whole=1)], alone, workers(1, on="a")) == (
        INSUFFICIENT_RESOURCES,
        "the job needs 1.5 nvidia.com/gpu; free: 1 nvidia.com/gpu",
    )


def test_more_memory_than_any_gpu_has_is_told_with_the_largest() -> None:
    huge = workers(1, VgpuShare(100, 80 * GIB))

    assert told([A, node("b", memory=40)], huge) == (
        NEVER_FITS,
        "no GPU of the cluster has 80Gi of memory: the largest has 40Gi",
    )
    assert told([A, node("b", memory=40)], workers(1, VgpuShare(100, 20 * GIB), on="a"))[1] == (
        "no GPU of the nodes that may run it has 20Gi of memory: the largest has 16Gi"
    )
    assert told([A, node("b", memory=0)], huge)[1] == (
        "no GPU of the cluster has 80Gi of memory: the largest has 16Gi, as far as nodes say "
        "(label nvidia.com/gpu.memory)"
    )


def test_nodes_that_do_not_say_how_much_memory_their_gpus_have_are_told_to() -> None:
    waiting = snapshot([node("a", memory=0), node("b", memory=0)], workers(1, VgpuShare(100, GIB)))
    (decision,) = afresh(fifo)(waiting)

    assert getattr(decision, "code", "") == NEVER_FITS
    assert getattr(decision, "cause", "") == WaitCause.GPU_MEMORY_UNKNOWN
    assert getattr(decision, "message", "") == (
        "a worker needs 1Gi of a GPU's memory, and no node says how much its GPUs have (label nvidia.com/gpu.memory)"
    )


def test_parts_that_do_not_fill_gpus_may_never_fit_though_there_are_as_many_in_total() -> None:
    assert told([node("a"), node("b", count=1)], workers(5, VgpuShare(600))) == (
        NEVER_FITS,
        "even when empty, the GPUs of the cluster have room for 3 of 5 workers, which need 0.6 of one each",
    )
    assert told([node("a")], workers(4, VgpuShare(100, 10 * GIB), on="a"))[1] == (
        "even when empty, the GPUs of the cluster have room for 2 of 4 workers, "
        "which need 0.1 of one and 10Gi of its memory each"
    )


def test_a_cluster_without_gpus_has_none_in_parts_either() -> None:
    nodes = [node("a", count=1), NodeState(name="b", capacity={CPU: 8000}, free={CPU: 8000})]

    assert told(nodes, workers(1, on="b"))[1] == (
        "no node is large enough for one worker: it requests 0.5 nvidia.com/gpu; the largest node has 0 nvidia.com/gpu"
    )


def test_gpus_of_nodes_that_are_away_would_help() -> None:
    code, message = told([A], workers(5), away=[node("b", count=1, away="is cordoned")])

    assert code == NODES_UNAVAILABLE
    assert message == (
        "even when empty, the GPUs of the other nodes have room for 4 of 5 workers, which need 0.5 of one each; "
        "node b is cordoned"
    )


def test_it_is_explained_what_is_left_of_each_gpu_of_the_nearest_nodes() -> None:
    found = explained([A, B], workers(1))

    assert [(each.name, each.free[NVIDIA_GPU], each.lacking) for each in found.nodes] == [
        ("a", 700, {NVIDIA_GPU: 100}),
        ("b", 100, {NVIDIA_GPU: 400}),
    ]
    first = found.nodes[0].gpus
    assert first is not None
    assert first.free == 0
    assert {number: (left.share, left.memory * 10 // GIB) for number, left in first.shared.items()} == {
        0: (300, 48),
        1: (400, 64),
    }
    assert found.lacking == {}


def test_memory_is_explained_on_the_gpu_that_lacks_least() -> None:
    full = node("a", {0: VgpuShare(100, 13 * GIB), 1: VgpuShare(100, 10 * GIB)})
    (found,) = explained([full], workers(1, VgpuShare(100, 8 * GIB), on="a")).nodes

    assert found.lacking == {GPU_MEMORY: 2 * GIB}
    assert (found.free[GPU_MEMORY], found.capacity[GPU_MEMORY]) == (6 * GIB, 16 * GIB)


def test_gpus_that_are_shared_are_not_explained_as_free_to_those_that_need_whole_ones() -> None:
    found = explained([A], workers(1, None, gpus(1), on="a"))

    assert found.lacking == {NVIDIA_GPU: 1000}
    assert [(each.free[NVIDIA_GPU], each.lacking[NVIDIA_GPU]) for each in found.nodes] == [(0, 1000)]


def test_the_gang_whose_part_is_enough_is_the_one_to_end() -> None:
    held = [
        RunningGang(
            name=f"job-{number}",
            demands=[workers(1, VgpuShare(share), on="a")],
            nodes={Replica(WORKER, 0): f"a/{number}"},
            is_elastic=False,
        )
        for number, share in enumerate((700, 600))
    ]

    assert explained([A], workers(1, on="a"), running=held).gangs_to_end == ["job-0"]
    assert explained([A], workers(4, on="a"), running=held).gangs_to_end == ["job-1", "job-0"]


def test_what_only_keeps_a_gpu_for_others_is_no_part_of_it() -> None:
    kept = NodeState(
        name="a",
        capacity=shared_gpus(1),
        free={**shared_gpus(1), f"{NVIDIA_GPU}/0": -HELD_BY_ANCHOR},
    )
    found = NodeGpus.of(kept)

    assert found is not None
    assert (found.free, found.left, dict(found.shared)) == (0, 1000, {0: VgpuAmount(WHOLE_GPU, 16 * GIB)})
    assert vgpu_amounts({f"{NVIDIA_GPU}/0": HELD_BY_ANCHOR}) == {}
    assert with_fractions({CPU: 1, f"{NVIDIA_GPU}/0": HELD_BY_ANCHOR}) == {CPU: 1}


def test_a_node_whose_gpus_may_not_be_shared_has_no_vgpus() -> None:
    assert NodeGpus.of(NodeState(name="a", capacity=gpus(2), free=gpus(2))) is None
    assert with_fractions({**gpus(1), f"{NVIDIA_GPU}/1": 250_000, f"{NVIDIA_GPU}/1/memory": 7}) == {NVIDIA_GPU: 1250}


SHARES = st.builds(VgpuShare, st.integers(1, 1000), st.none() | st.integers(0, 18).map(lambda gib: gib * GIB))
HELD = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), SHARES), max_size=12)


@pytest.mark.parametrize("memory", [0, 16])
@given(held=HELD, share=SHARES, count=st.integers(1, 6))
def test_words_about_gpus_agree_with_what_the_ledger_has_room_for(
    memory: int, held: list[tuple[str, int, VgpuShare]], share: VgpuShare, count: int
) -> None:
    ledger = NodeLedger.of_free([node("a", count=3, memory=memory), node("b", count=2, memory=memory)])
    for name, number, part in held:
        amounts = part.amounts(number, memory * GIB)
        if ledger.fits(f"{name}/{number}", amounts):
            ledger.take(f"{name}/{number}", amounts)
    demand = workers(count, share)
    room, left = int(ledger.room(ledger.requests.of(demand)).sum()), ledger.gpus_left()

    assert left is not None
    assert left.room(share) == room
    assert bool(gpu_shortage.gpu_shortage(demand, ledger)) == (room < count)
    assert GpusLeft.joined([left, left]).room(share) == 2 * room
