from __future__ import annotations

import datetime as dt
from collections import Counter, UserDict
from collections.abc import ItemsView, Mapping, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tarragon.base.resources import CPU, NVIDIA_GPU, add_resources
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.api.decision import (
    BEHIND_OTHERS,
    INSUFFICIENT_RESOURCES,
    NEVER_FITS,
    NODES_UNAVAILABLE,
    Admit,
    Decision,
    Defer,
    GangDecision,
    RequeueAt,
    Resize,
    WaitCause,
)
from tarragon.scheduling.api.snapshot import (
    Demand,
    DomainMap,
    NodeState,
    PressuredNodes,
    RunningGang,
    Snapshot,
    TopologyConstraint,
    WaitingGang,
)
from tarragon.scheduling.policies import POLICIES
from tarragon.scheduling.policies.fifo import fifo
from tests.scheduling.scenes import afresh

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def node(name: str, gpus: int, *, used: int = 0) -> NodeState:
    return NodeState(name=name, capacity={NVIDIA_GPU: gpus}, free={NVIDIA_GPU: gpus - used})


def demand(
    nodes: Sequence[NodeState], wish: int, *, kind: ReplicaType = WORKER, least: int | None = None, each: int = 1
) -> Demand:
    eligible = frozenset(state.name for state in nodes)
    return Demand(
        type=kind,
        is_anchor=kind == PS,
        resources={NVIDIA_GPU: each},
        minimum=wish if least is None else least,
        requested=wish,
        eligible_nodes=eligible,
    )


def gang(name: str, *demands: Demand, waited: int = 0) -> WaitingGang:
    return WaitingGang(name=name, queued_at=NOON - dt.timedelta(seconds=waited), demands=demands)


def snapshot(nodes: Sequence[NodeState], *waiting: WaitingGang, running: Sequence[RunningGang] = ()) -> Snapshot:
    return Snapshot(now=NOON, nodes=nodes, waiting=waiting, running=running)


def about_gangs(decisions: Sequence[Decision]) -> list[GangDecision]:
    return [decision for decision in decisions if not isinstance(decision, RequeueAt)]


def test_a_gang_that_fits_starts_whole() -> None:
    nodes = [node("a", 2), node("b", 2)]
    decisions = afresh(fifo)(snapshot(nodes, gang("job", demand(nodes, 1, kind=PS), demand(nodes, 3))))
    assert [type(decision) for decision in decisions] == [Admit]
    assert isinstance(decisions[0], Admit)
    assert Counter(decisions[0].nodes.values()) == {"a": 2, "b": 2}


def test_a_gang_that_cannot_start_whole_does_not_start_at_all() -> None:
    nodes = [node("a", 4, used=2)]
    (decision,) = afresh(fifo)(snapshot(nodes, gang("job", demand(nodes, 4))))
    assert decision == Defer(
        "job", INSUFFICIENT_RESOURCES, f"the job needs 0.004 {NVIDIA_GPU}; free: 0.002 {NVIDIA_GPU}"
    )


def test_what_is_free_is_told_without_what_others_are_given_in_the_same_round() -> None:
    nodes = [node("a", 4)]
    first, second = gang("first", demand(nodes, 3), waited=9), gang("second", demand(nodes, 2))

    _, decision = afresh(fifo)(snapshot(nodes, first, second))

    assert decision == Defer(
        "second", INSUFFICIENT_RESOURCES, f"the job needs 0.002 {NVIDIA_GPU}; free: 0.001 {NVIDIA_GPU}"
    )


def test_it_prefers_one_node_and_of_these_the_fullest() -> None:
    nodes = [node("empty", 8), node("half", 8, used=4), node("full", 8, used=7)]
    (decision,) = afresh(fifo)(snapshot(nodes, gang("job", demand(nodes, 4))))
    assert isinstance(decision, Admit)
    assert set(decision.nodes.values()) == {"half"}


def test_who_comes_later_does_not_pass_the_one_who_waits() -> None:
    nodes = [node("a", 4, used=2)]
    first, second = gang("first", demand(nodes, 4), waited=10), gang("second", demand(nodes, 1))
    decisions = afresh(fifo)(snapshot(nodes, second, first))
    assert [(decision.gang, getattr(decision, "code", "")) for decision in about_gangs(decisions)] == [
        ("first", INSUFFICIENT_RESOURCES),
        ("second", BEHIND_OTHERS),
    ]


def test_who_could_never_run_blocks_nobody() -> None:
    nodes = [node("a", 4)]
    giant, small = gang("giant", demand(nodes, 1, each=5), waited=10), gang("small", demand(nodes, 1))
    decisions = {decision.gang: decision for decision in about_gangs(afresh(fifo)(snapshot(nodes, giant, small)))}
    assert isinstance(decisions["small"], Admit)
    waits = decisions["giant"]
    assert isinstance(waits, Defer)
    assert waits.code == NEVER_FITS
    assert (
        waits.message
        == f"no node is large enough for one worker: it requests 0.005 {NVIDIA_GPU}; the node has 0.004 {NVIDIA_GPU}"
    )


def test_a_replica_that_no_node_may_run_is_said_to_be_so() -> None:
    nodes = [node("a", 4)]
    stranger = Demand(type=PS, is_anchor=True, resources={}, minimum=1, requested=1, eligible_nodes=frozenset())
    (decision,) = afresh(fifo)(snapshot(nodes, gang("job", stranger)))
    assert isinstance(decision, Defer)
    assert (decision.code, decision.cause) == (NEVER_FITS, WaitCause.NO_ELIGIBLE_NODE)
    assert decision.message.split(":")[0] == "no node may run a ps"


def test_an_empty_cluster_says_that_it_has_no_node() -> None:
    (decision,) = afresh(fifo)(snapshot([], gang("job", demand([], 1))))
    assert decision == Defer("job", NEVER_FITS, "the cluster has no node that is ready")


def test_an_elastic_gang_starts_with_what_there_is_above_its_minimum() -> None:
    nodes = [node("a", 3)]
    (decision,) = afresh(fifo)(snapshot(nodes, gang("job", demand(nodes, 1, kind=PS), demand(nodes, 4, least=1))))
    assert isinstance(decision, Admit)
    assert sorted(decision.nodes) == [Replica(PS, 0), Replica(WORKER, 0), Replica(WORKER, 1)]


def test_a_wish_that_has_sunk_is_granted_from_the_highest_index() -> None:
    nodes = [node("a", 3, used=3)]
    running = RunningGang(
        name="job",
        demands=[demand(nodes, 1)],
        nodes={Replica(WORKER, index): "a" for index in range(3)},
        is_elastic=False,
    )
    assert afresh(fifo)(snapshot(nodes, running=[running])) == [
        Resize("job", {Replica(WORKER, 0): "a"}, "as requested")
    ]


def test_an_elastic_gang_grows_only_while_nobody_waits() -> None:
    nodes = [node("a", 4, used=1)]
    running = RunningGang(
        name="old", demands=[demand(nodes, 3, least=1)], nodes={Replica(WORKER, 0): "a"}, is_elastic=True
    )
    (grown,) = afresh(fifo)(snapshot(nodes, running=[running]))
    assert isinstance(grown, Resize)
    assert len(grown.nodes) == 3
    decisions = afresh(fifo)(snapshot(nodes, gang("new", demand(nodes, 4)), running=[running]))
    assert [type(decision) for decision in decisions] == [Defer]


def test_a_rigid_gang_does_not_grow() -> None:
    nodes = [node("a", 4, used=1)]
    running = RunningGang(name="old", demands=[demand(nodes, 3)], nodes={Replica(WORKER, 0): "a"}, is_elastic=False)
    assert afresh(fifo)(snapshot(nodes, running=[running])) == []


def test_a_replica_whose_node_is_gone_gets_another_before_anybody_starts() -> None:
    nodes = [node("b", 2)]
    held = {Replica(WORKER, 0): "b", Replica(WORKER, 1): "gone"}
    lost = RunningGang(
        name="lost",
        demands=(demand(nodes, 2),),
        nodes=held,
        is_elastic=False,
        displaced=frozenset({Replica(WORKER, 1)}),
    )
    decisions = afresh(fifo)(snapshot([node("b", 2, used=1)], gang("job", demand(nodes, 1)), running=[lost]))
    assert decisions[0] == Resize(
        "lost", {Replica(WORKER, 0): "b", Replica(WORKER, 1): "b"}, "its node is no longer available"
    )
    assert isinstance(decisions[1], Defer)


def test_two_gangs_of_48_on_64_gpus_never_deadlock() -> None:
    nodes = [node(f"n{index:02}", 4) for index in range(16)]
    decisions = afresh(fifo)(snapshot(nodes, gang("one", demand(nodes, 48)), gang("two", demand(nodes, 48))))
    assert [type(decision) for decision in decisions] == [Admit, Defer]


NODES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=6).map(
    lambda sizes: [node(f"n{index}", gpus, used=min(gpus, used)) for index, (gpus, used) in enumerate(sizes)]
)
SHAPES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(0, 6), st.integers(1, 3), st.integers(0, 90)),
    max_size=5,
)


def gangs_of(nodes: Sequence[NodeState], shapes: Sequence[tuple[int, int, int, int, int]]) -> list[WaitingGang]:
    return [
        gang(
            f"job{number}",
            demand(nodes, servers, kind=PS),
            demand(nodes, max(least, wish), least=least, each=each),
            waited=waited,
        )
        for number, (servers, least, wish, each, waited) in enumerate(shapes)
    ]


@given(nodes=NODES, shapes=SHAPES)
def test_no_node_is_ever_oversold_and_no_gang_starts_in_part(
    nodes: list[NodeState], shapes: list[tuple[int, int, int, int, int]]
) -> None:
    waiting = gangs_of(nodes, shapes)
    for name, policy in POLICIES.items():
        decisions = afresh(policy)(snapshot(nodes, *waiting))
        assert {decision.gang for decision in about_gangs(decisions)} == {waits.name for waits in waiting}, name
        taken: dict[str, list[Mapping[str, int]]] = {}
        by_name = {waits.name: waits for waits in waiting}
        for decision in decisions:
            if isinstance(decision, Admit):
                sizes = Counter(replica.type for replica in decision.nodes)
                for wanted in by_name[decision.gang].demands:
                    assert wanted.minimum <= sizes[wanted.type] <= wanted.requested
                    for replica, place in decision.nodes.items():
                        if replica.type == wanted.type:
                            assert replica.index < sizes[wanted.type]
                            taken.setdefault(place, []).append(wanted.resources)
        for state in nodes:
            assert (
                add_resources(taken.get(state.name, []))[NVIDIA_GPU] <= state.free[NVIDIA_GPU]
                if state.name in taken
                else True
            )


@given(nodes=NODES, shapes=SHAPES)
def test_the_same_snapshot_gives_the_same_decisions(
    nodes: list[NodeState], shapes: list[tuple[int, int, int, int, int]]
) -> None:
    waiting = gangs_of(nodes, shapes)
    assert afresh(fifo)(snapshot(nodes, *waiting)) == afresh(fifo)(snapshot(nodes, *reversed(waiting)))


def cordoned(name: str, gpus: int) -> NodeState:
    return NodeState(
        name=name, capacity={NVIDIA_GPU: gpus}, free={}, unavailable_reason=f"is cordoned (kubectl uncordon {name})"
    )


def test_a_gang_that_needs_a_cordoned_node_waits_for_it_and_blocks_nobody() -> None:
    here, gone = [node("b", 2)], [cordoned("a", 2)]
    large = gang("large", demand([*here, *gone], 4), waited=10)
    decisions = afresh(fifo)(
        Snapshot(now=NOON, nodes=here, unavailable_nodes=gone, waiting=[large, gang("small", demand(here, 1))])
    )

    words = f"the job needs 0.004 {NVIDIA_GPU}; the other nodes have 0.002 {NVIDIA_GPU}; "
    assert decisions[0] == Defer("large", NODES_UNAVAILABLE, f"{words}node a is cordoned (kubectl uncordon a)")
    assert isinstance(decisions[1], Admit)


def test_with_every_node_cordoned_a_gang_waits_and_the_nodes_are_named() -> None:
    gone = [cordoned("a", 2)]
    (decision,) = afresh(fifo)(
        Snapshot(now=NOON, nodes=[], unavailable_nodes=gone, waiting=[gang("job", demand(gone, 2))])
    )

    words = "all nodes that may run it are unavailable: node a is cordoned (kubectl uncordon a)"
    assert decision == Defer("job", NODES_UNAVAILABLE, words)


PRESSED = "has the taint node.kubernetes.io/memory-pressure"
PRESSED_B = PressuredNodes({"b": PRESSED})


def test_a_gang_waits_for_nodes_under_pressure_and_does_not_start_there() -> None:
    nodes = [node("a", 2), node("b", 2)]
    large = gang("large", replace(demand(nodes[:1], 4), pressured_nodes=PRESSED_B))
    too_large = gang("too large", replace(demand(nodes[:1], 5), pressured_nodes=PRESSED_B))
    alone = gang("alone", replace(demand([], 2), pressured_nodes=PRESSED_B))
    decisions = afresh(fifo)(snapshot(nodes, large, too_large, alone, gang("small", demand(nodes[:1], 1))))

    waits = {decision.gang: (decision.code, decision.message) for decision in decisions if isinstance(decision, Defer)}
    assert waits["large"][0] == NODES_UNAVAILABLE
    assert waits["large"][1].startswith("the job needs ")
    assert waits["large"][1].endswith(f"; node b {PRESSED}")
    assert waits["alone"] == (NODES_UNAVAILABLE, f"all nodes that may run it are unavailable: node b {PRESSED}")
    assert waits["too large"][0] == NEVER_FITS
    assert [decision.gang for decision in decisions if isinstance(decision, Admit)] == ["small"]


def test_a_gang_that_waits_for_room_is_told_of_free_nodes_under_pressure() -> None:
    nodes = [node("a", 2, used=2), node("b", 2)]
    waits = gang("waits", replace(demand(nodes[:1], 2), pressured_nodes=PRESSED_B))
    (decision,) = afresh(fifo)(snapshot(nodes, waits))

    assert isinstance(decision, Defer)
    assert decision.code == INSUFFICIENT_RESOURCES
    assert decision.message.endswith(f"; node b {PRESSED}")


def test_nodes_under_pressure_that_are_too_small_are_not_waited_for() -> None:
    nodes = [node("a", 2, used=2), NodeState(name="cpu", capacity={CPU: 8000}, free={CPU: 8000}), node("small", 1)]
    pressed = PressuredNodes({"cpu": PRESSED, "small": PRESSED})
    sizes = (2, 1)
    gangs = [gang("job", replace(demand(nodes[:1], 1, each=size), pressured_nodes=pressed)) for size in sizes]
    large, least = (afresh(fifo)(snapshot(nodes, each))[0] for each in gangs)

    assert isinstance(large, Defer)
    assert large.message == f"the job needs 0.002 {NVIDIA_GPU}; free: 0.001 {NVIDIA_GPU}"
    assert isinstance(least, Defer)
    assert least.message.endswith(f"; node small {PRESSED}")
    assert "node cpu" not in least.message


def test_a_job_that_needs_nodes_under_pressure_is_told_only_of_those_that_its_replicas_fit() -> None:
    nodes = [node("a", 2), NodeState(name="cpu", capacity={CPU: 8000}, free={CPU: 8000}), node("b", 2)]
    on_gpus = replace(demand(nodes[:1], 4), pressured_nodes=PressuredNodes({"cpu": PRESSED, "b": PRESSED}))
    (decision,) = afresh(fifo)(snapshot(nodes, gang("job", on_gpus)))

    assert isinstance(decision, Defer)
    assert decision.code == NODES_UNAVAILABLE
    assert decision.message.endswith(f"; node b {PRESSED}")
    assert "node cpu" not in decision.message


def test_of_many_nodes_under_pressure_the_first_are_named_and_the_others_counted() -> None:
    names = [f"p{number}" for number in range(7)]
    nodes = [node("a", 2, used=2), *(node(name, 2) for name in names)]
    before, behind = (PressuredNodes(dict.fromkeys(each, PRESSED)) for each in (names[:5], names[2:]))
    job = gang(
        "job",
        replace(demand(nodes[:1], 1), pressured_nodes=behind),
        replace(demand(nodes[:1], 1, kind=PS), pressured_nodes=before),
    )
    (decision,) = afresh(fifo)(snapshot(nodes, job))

    assert isinstance(decision, Defer)
    named = ", ".join(f"node {name} {PRESSED}" for name in names[:4])
    assert decision.message.endswith(f"; {named}, 3 more")


class Counted(UserDict[str, str]):
    """Counts how often it is read as a whole."""

    readings = 0

    def items(self) -> ItemsView[str, str]:
        self.readings += 1
        return super().items()


def test_nodes_under_pressure_are_gone_through_once_for_all_demands() -> None:
    """Of thousands of gangs each would else make a set of hundreds of nodes, and compare it with those of others."""
    reasons = Counted({"b": PRESSED})
    pressed = PressuredNodes(reasons)
    first, *others = [replace(demand([], size), pressured_nodes=pressed) for size in (1, 1, 2)]

    assert reasons.readings == 1
    assert [each.shape_key == first.shape_key for each in others] == [True, False]
    relieved = replace(first, pressured_nodes=PressuredNodes({"c": PRESSED}))
    assert relieved.shape_key != first.shape_key


def test_how_a_gang_is_spread_may_be_decided_by_nodes_under_pressure() -> None:
    """With nodeTaintsPolicy: Honor they are in no domain while it lasts."""
    spread = TopologyConstraint(domain_of=DomainMap({}), counted_types=frozenset({WORKER}), max_skew=1)
    limited = replace(demand([], 2), pressured_nodes=PRESSED_B, topology_constraints=(spread,))
    (decision,) = afresh(fifo)(snapshot([node("b", 2)], gang("job", limited)))

    assert isinstance(decision, Defer)
    assert (decision.code, decision.message) == (
        NODES_UNAVAILABLE,
        f"all nodes that may run it are unavailable: node b {PRESSED}",
    )


def test_a_gang_may_wait_for_nodes_of_both_kinds() -> None:
    gone = [NodeState(name="a", capacity={NVIDIA_GPU: 2}, free={}, unavailable_reason="is not ready")]
    both = gang("job", replace(demand(gone, 4), pressured_nodes=PRESSED_B))
    (decision,) = afresh(fifo)(Snapshot(now=NOON, nodes=[node("b", 2)], unavailable_nodes=gone, waiting=[both]))

    assert isinstance(decision, Defer)
    assert decision.code == NODES_UNAVAILABLE
    assert decision.message.endswith(f"node a is not ready, node b {PRESSED}")


def test_a_gang_that_is_too_large_for_the_nodes_that_are_away_as_well_never_fits() -> None:
    gone = [cordoned("a", 2)]
    (decision,) = afresh(fifo)(
        Snapshot(now=NOON, nodes=[], unavailable_nodes=gone, waiting=[gang("job", demand(gone, 3, each=2))])
    )

    assert isinstance(decision, Defer)
    assert decision.code == NEVER_FITS


def test_who_may_use_some_nodes_only_is_told_what_these_have() -> None:
    """A taint on the others, say: that there is enough on all of them together would be no help."""
    nodes = [node("a", 8), node("b", 4), node("c", 8)]
    (decision,) = about_gangs(afresh(fifo)(snapshot(nodes, gang("job", demand(nodes[1:2], 6)))))

    assert decision == Defer(
        "job",
        NEVER_FITS,
        "the 1 of 3 nodes that may run it are too small even when empty: "
        f"the job needs 0.006 {NVIDIA_GPU}; they have 0.004 {NVIDIA_GPU}",
    )
