from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.base.resources import CPU, NVIDIA_GPU, Resources
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import CHIEF, PS
from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.api.snapshot import Demand, DomainMap, NodeState, RunningGang, TopologyConstraint
from tarragon.scheduling.placement.fit import Assignment, assign, assign_more, is_feasible
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import NodeLedger
from tarragon.scheduling.state.memory import Memory
from tarragon.scheduling.state.node_requests import Amounts


def node(name: str, gpus: int, cpu: int = 64, domains: tuple[str, ...] = ()) -> NodeState:
    amounts = {NVIDIA_GPU: gpus, CPU: cpu}
    return NodeState(name=name, capacity=amounts, free=amounts, topology=domains)


def demand(kind: ReplicaType, nodes: Sequence[NodeState], wish: int, each: Resources, **how: Any) -> Demand:
    """`how`: the other fields of a demand."""
    eligible = frozenset(state.name for state in nodes)
    fields = {"minimum": wish, "is_anchor": kind == PS, **how}
    return Demand(type=kind, resources=each, requested=wish, eligible_nodes=eligible, **fields)


def workers(nodes: Sequence[NodeState], wish: int, *, least: int | None = None, gpus: int = 1) -> Demand:
    return demand(WORKER, nodes, wish, {NVIDIA_GPU: gpus, CPU: 1}, minimum=wish if least is None else least)


def servers(nodes: Sequence[NodeState], wish: int, cpu: int = 1) -> Demand:
    return demand(PS, nodes, wish, {CPU: cpu})


def placed(nodes: Sequence[NodeState], *demands: Demand) -> Mapping[str, int]:
    """How many replicas each node gets."""
    found = assign(demands, NodeLedger.of_free(nodes))
    assert found is not None
    return Counter(found.values())


def test_of_the_nodes_that_take_it_whole_the_one_with_least_left_gets_it() -> None:
    nodes = [node("a", 8), node("b", 4), node("c", 6)]
    assert placed(nodes, servers(nodes, 1), workers(nodes, 4)) == {"b": 5}


def test_who_needs_no_accelerator_leaves_nodes_alone_that_have_some() -> None:
    nodes = [node("a", 4, cpu=16), node("b", 0, cpu=64)]
    assert placed(nodes, servers(nodes, 1), demand(WORKER, nodes, 2, {CPU: 4})) == {"b": 3}


def test_a_gang_that_no_node_takes_whole_gets_as_few_as_it_goes() -> None:
    nodes = [node("a", 2), node("b", 8), node("c", 3), node("d", 8), node("e", 1)]
    assert placed(nodes, workers(nodes, 16)).keys() == {"b", "d"}


def test_of_equally_few_nodes_it_uses_those_up_that_it_fills() -> None:
    nodes = [node("a", 4), node("b", 4), node("c", 3), node("d", 3)]
    assert placed(nodes, workers(nodes, 6)) == {"c": 3, "d": 3}


def test_parameter_servers_are_where_workers_are_if_there_is_room() -> None:
    nodes = [node("a", 8, cpu=10), node("b", 8, cpu=10), node("c", 0, cpu=64)]
    counts = placed(nodes, servers(nodes, 2, cpu=2), workers(nodes, 16))
    assert counts == {"a": 9, "b": 9}


def test_parameter_servers_that_would_take_the_workers_cpu_are_elsewhere() -> None:
    nodes = [node("a", 8, cpu=8), node("b", 8, cpu=8), node("c", 0, cpu=64)]
    found = assign([servers(nodes, 2, cpu=4), workers(nodes, 16)], NodeLedger.of_free(nodes))
    assert found is not None
    assert {found[Replica(PS, 0)], found[Replica(PS, 1)]} == {"c"}


def test_replicas_that_could_take_each_others_only_nodes_get_nodes_of_their_own() -> None:
    nodes = [node("a", 4, cpu=8), node("b", 4, cpu=8), node("c", 3, cpu=2)]
    chief = demand(CHIEF, nodes[2:], 1, {NVIDIA_GPU: 1, CPU: 2})

    assert placed(nodes, chief, demand(WORKER, nodes, 3, {NVIDIA_GPU: 2, CPU: 1})) == {"a": 2, "b": 1, "c": 1}


def test_a_parameter_server_that_may_be_on_one_node_only_gets_it_although_workers_are_scarcer() -> None:
    nodes = [node(name, 1, cpu=1) for name in ("a", "b", "c")]
    pinned = replace(servers(nodes, 1), eligible_nodes=frozenset({"a"}))
    inventory = Inventory.of(nodes)
    memory = Memory().of(inventory, ())
    for wanted in (pinned, workers(nodes, 1)):
        memory.requests.of(wanted)

    for ledger in (NodeLedger.of_free(nodes), NodeLedger.of_free(inventory, memory)):
        assert is_feasible([pinned, workers(nodes, 1)], ledger)
        assert assign([pinned, workers(nodes, 1)], ledger) == {Replica(PS, 0): "a", Replica(WORKER, 0): "b"}


def test_the_first_workers_are_beside_the_parameter_server() -> None:
    nodes = [node("a", 4, cpu=4), node("b", 4, cpu=64)]
    found = assign([servers(nodes, 1, cpu=8), workers(nodes, 8)], NodeLedger.of_free(nodes))
    assert found is not None
    assert found[Replica(PS, 0)] == "b"
    assert [found[Replica(WORKER, index)] for index in range(8)] == ["b"] * 4 + ["a"] * 4


def racks(*sizes: tuple[str, str, int]) -> list[NodeState]:
    return [node(f"n{index}", gpus, domains=(zone, rack)) for index, (zone, rack, gpus) in enumerate(sizes)]


def test_a_gang_on_several_nodes_is_within_one_rack() -> None:
    nodes = racks(("z1", "r1", 4), ("z1", "r2", 4), ("z2", "r1", 4), ("z1", "r2", 4))
    assert placed(nodes, workers(nodes, 8)) == {"n1": 4, "n3": 4}


def test_where_no_rack_takes_it_it_is_within_one_zone() -> None:
    nodes = racks(("z1", "r1", 4), ("z2", "r1", 4), ("z1", "r2", 2), ("z2", "r2", 4))
    assert placed(nodes, workers(nodes, 8)) == {"n1": 4, "n3": 4}


def test_a_rack_that_would_take_more_nodes_is_passed_over() -> None:
    nodes = racks(("z1", "r1", 2), ("z1", "r1", 2), ("z1", "r1", 4), ("z2", "r2", 4))
    assert placed(nodes, workers(nodes, 8)) == {"n2": 4, "n3": 4}


def test_of_equally_few_nodes_the_preferred_ones_are_taken_even_if_they_are_further_apart() -> None:
    nodes = racks(("z1", "r1", 4), ("z1", "r1", 4), ("z1", "r2", 4), ("z2", "r1", 4))
    wanted = demand(WORKER, nodes, 8, {NVIDIA_GPU: 1}, node_scores={"n2": 10, "n3": 10})
    assert placed(nodes, wanted) == {"n2": 4, "n3": 4}


def test_a_preference_costs_no_further_node() -> None:
    nodes = [node("a", 4), node("b", 3), node("c", 8)]
    assert placed(nodes, demand(WORKER, nodes, 7, {NVIDIA_GPU: 1}, node_scores={"a": 5, "b": 5})) == {"c": 7}


def test_a_gang_that_may_be_smaller_is_as_large_as_it_goes() -> None:
    nodes = [node("a", 4), node("b", 3)]
    assert sum(placed(nodes, workers(nodes, 16, least=2)).values()) == 7


def test_growing_begins_beside_the_parameter_server_and_goes_on_in_its_rack() -> None:
    nodes = racks(("z1", "r1", 2), ("z2", "r1", 8), ("z1", "r1", 4), ("z1", "r2", 4))
    wanted = workers(nodes, 6)
    ledger = NodeLedger.of_free(nodes)
    found = assign_more(
        [(Replica(WORKER, index), wanted) for index in range(1, 6)], ledger, near={Replica(PS, 0): "n0"}, anchors={PS}
    )
    assert list(found.values()) == ["n0", "n0", "n2", "n2", "n2"]


def test_growing_takes_what_there_is_without_gaps() -> None:
    nodes = [node("a", 2)]
    wanted = workers(nodes, 6)
    found = assign_more(
        [(Replica(WORKER, index), wanted) for index in range(1, 6)], NodeLedger.of_free(nodes), near={}, anchors=set()
    )
    assert found == {Replica(WORKER, 1): "a", Replica(WORKER, 2): "a"}


def by_name(nodes: Sequence[NodeState]) -> DomainMap:
    return DomainMap({state.name: state.name for state in nodes})


def test_replicas_that_keep_off_each_other_get_a_node_each() -> None:
    nodes = [node("a", 8), node("b", 8), node("c", 8)]
    apart = TopologyConstraint(domain_of=by_name(nodes), counted_types=frozenset({WORKER}), max_per_domain=1)
    wanted = demand(WORKER, nodes, 3, {NVIDIA_GPU: 1}, topology_constraints=(apart,))
    assert placed(nodes, wanted) == {"a": 1, "b": 1, "c": 1}
    assert (
        assign([demand(WORKER, nodes, 4, {NVIDIA_GPU: 1}, topology_constraints=(apart,))], NodeLedger.of_free(nodes))
        is None
    )


def test_replicas_that_have_to_be_together_are_in_the_fullest_domain_that_takes_all() -> None:
    nodes = racks(("z1", "", 4), ("z1", "", 4), ("z2", "", 4), ("z2", "", 2), ("z3", "", 2))
    zones = DomainMap({state.name: state.topology[0] for state in nodes})
    together = TopologyConstraint(domain_of=zones, counted_types=frozenset({WORKER}), in_one_domain=True)
    wanted = demand(WORKER, nodes, 6, {NVIDIA_GPU: 1}, topology_constraints=(together,))
    assert placed(nodes, wanted) == {"n2": 4, "n3": 2}


def test_a_gang_that_is_spread_evenly_is_so_with_what_others_have_there() -> None:
    nodes = [node("a", 8), node("b", 8)]
    even = TopologyConstraint(
        domain_of=by_name(nodes), counted_types=frozenset({WORKER}), existing_pods={"a": 3}, max_skew=1
    )
    assert placed(nodes, demand(WORKER, nodes, 5, {NVIDIA_GPU: 1}, topology_constraints=(even,))) == {"a": 1, "b": 4}


def test_growing_keeps_to_the_rules_too() -> None:
    nodes = [node("a", 8), node("b", 8), node("c", 8)]
    apart = TopologyConstraint(domain_of=by_name(nodes), counted_types=frozenset({WORKER}), max_per_domain=1)
    wanted = demand(WORKER, nodes, 4, {NVIDIA_GPU: 1}, topology_constraints=(apart,))
    wished = [(Replica(WORKER, index), wanted) for index in (1, 2, 3)]
    found = assign_more(wished, NodeLedger.of_free(nodes), near={Replica(WORKER, 0): "a"}, anchors=set())
    assert found == {Replica(WORKER, 1): "b", Replica(WORKER, 2): "c"}


def test_whether_it_could_fit_is_told_without_taking_and_anew_when_something_was_taken_or_given() -> None:
    nodes = [node("a", 4)]
    ledger = NodeLedger.of_free(nodes)
    gang = [workers(nodes, 4, least=3)]
    assert is_feasible(gang, ledger)
    assert ledger.free("a")[NVIDIA_GPU] == 4
    ledger.take("a", {NVIDIA_GPU: 2})
    assert not is_feasible(gang, ledger)
    ledger.release([("a", {NVIDIA_GPU: 1}, 1)])
    assert is_feasible(gang, ledger)


def test_thousands_of_terabytes_are_added_up_rightly() -> None:
    much = 4 * 2**40 * 1000
    amounts = {"memory": much, CPU: 64}
    nodes = [NodeState(name=f"n{index}", capacity=amounts, free=amounts) for index in range(4000)]
    half = {"memory": much // 2, CPU: 1}
    found = assign([demand(PS, nodes, 1, half), demand(WORKER, nodes, 3, half)], NodeLedger.of_free(nodes))
    assert found is not None
    assert len(set(found.values())) == 2


# What holds for any nodes and any gang.

SIZES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 6), st.sampled_from(["z1", "z2"]), st.sampled_from(["r1", "r2"])),
    min_size=1,
    max_size=6,
)
RULES = st.sampled_from(["", "most", "skew", "together", "apart"])


def nodes_of(sizes: Sequence[tuple[int, int, str, str]]) -> list[NodeState]:
    return [node(f"n{index}", gpus, cpu, (zone, rack)) for index, (gpus, cpu, zone, rack) in enumerate(sizes)]


@st.composite
def gangs(draw: st.DrawFn, nodes: Sequence[NodeState]) -> list[Demand]:
    """A chief, parameter servers and workers, each of any size, and workers with any rule."""
    zones = DomainMap({state.name: state.topology[0] for state in nodes})
    rules = {
        "": (),
        "most": (TopologyConstraint(domain_of=by_name(nodes), counted_types=frozenset({WORKER}), max_per_domain=2),),
        "skew": (
            TopologyConstraint(
                domain_of=zones,
                counted_types=frozenset({WORKER}),
                existing_pods={"z1": draw(st.integers(0, 2))},
                max_skew=1,
            ),
        ),
        "together": (TopologyConstraint(domain_of=zones, counted_types=frozenset({WORKER}), in_one_domain=True),),
        "apart": (TopologyConstraint(domain_of=by_name(nodes), counted_types=frozenset({PS}), max_per_domain=0),),
    }
    rule = draw(RULES)
    # Who keeps off others is kept off by them: the other side of it is a rule as well.
    other_side = (
        (TopologyConstraint(domain_of=by_name(nodes), counted_types=frozenset({WORKER}), max_per_domain=0),)
        if rule == "apart"
        else ()
    )
    least, more = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    may = draw(st.lists(st.sampled_from(nodes), unique_by=lambda state: state.name))
    each = {NVIDIA_GPU: draw(st.integers(0, 2)), CPU: draw(st.integers(0, 2))}
    return [
        demand(CHIEF, nodes, draw(st.integers(0, 1)), {CPU: 1}),
        demand(PS, nodes, draw(st.integers(0, 2)), {CPU: draw(st.integers(0, 3))}, topology_constraints=other_side),
        demand(WORKER, may or nodes, least + more, each, minimum=least, topology_constraints=rules[rule]),
    ]


SCENES = SIZES.map(nodes_of).flatmap(lambda nodes: st.tuples(st.just(nodes), gangs(nodes)))


def keeps(spread: TopologyConstraint, kind: ReplicaType, found: Assignment) -> bool:
    """As it lies in the end, whoever was placed first."""
    mine = [spread.domain_of.get(place) for replica, place in found.items() if replica.type == kind]
    if None in mine:
        return False
    counts = Counter(spread.existing_pods)
    counts.update(
        spread.domain_of[place]
        for replica, place in found.items()
        if replica.type in spread.counted_types and place in spread.domain_of
    )
    emptiest = min(counts[domain] for domain in spread.domain_of.values())
    return (
        (spread.max_per_domain is None or all(counts[str(domain)] <= spread.max_per_domain for domain in mine))
        and (spread.max_skew is None or all(counts[str(domain)] - emptiest <= spread.max_skew for domain in mine))
        and not (spread.in_one_domain and len(set(mine)) > 1)
    )


@given(scene=SCENES, is_counted=st.booleans())
@settings(max_examples=300, deadline=None)
def test_whatever_the_gang_it_is_whole_on_nodes_that_hold_it_or_nothing_is_taken(
    scene: tuple[list[NodeState], list[Demand]],
    *,
    is_counted: bool,
) -> None:
    nodes, demands = scene
    inventory = Inventory.of(nodes)
    memory = Memory().of(inventory, ())
    for wanted in demands if is_counted else ():
        memory.requests.of(wanted)
    ledger = NodeLedger.of_free(inventory, memory)
    before = ledger.table.copy()
    could = is_feasible(demands, ledger)
    assert (ledger.table == before).all()

    found = assign(demands, ledger)

    assert (found is not None) == could
    if found is None:
        assert (ledger.table == before).all()
        return
    assert (ledger.table >= 0).all()
    of = {wanted.type: wanted for wanted in demands}
    for wanted in demands:
        indexes = sorted(replica.index for replica in found if replica.type == wanted.type)
        assert indexes == list(range(len(indexes)))
        assert wanted.minimum <= len(indexes) <= wanted.requested
        assert all(keeps(spread, wanted.type, found) for spread in wanted.topology_constraints)
    assert all(node in of[replica.type].eligible_nodes for replica, node in found.items())
    ledger.release_all(found, demands)
    assert (ledger.table == before).all()


@given(scene=SCENES, order=st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_the_order_in_which_nodes_are_listed_changes_nothing(
    scene: tuple[list[NodeState], list[Demand]], order: object
) -> None:
    nodes, demands = scene
    shuffled = list(nodes)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert assign(demands, NodeLedger.of_free(nodes)) == assign(demands, NodeLedger.of_free(shuffled))


def takes_all(several: Sequence[NodeState], demands: Sequence[Demand]) -> bool:
    """By trying everything: how many replicas of each demand each of the nodes gets."""

    def fits(left: list[int], rest: Sequence[NodeState]) -> bool:
        if not any(left):
            return True
        if not rest:
            return False
        first, *others = rest
        ranges = [
            range(count + 1 if first.name in wanted.eligible_nodes else 1)
            for count, wanted in zip(left, demands, strict=True)
        ]
        for given_here in product(*ranges):
            if all(
                sum(count * wanted.resources.get(name, 0) for count, wanted in zip(given_here, demands, strict=True))
                <= there
                for name, there in first.free.items()
            ) and fits([count - here for count, here in zip(left, given_here, strict=True)], others):
                return True
        return False

    return fits([wanted.minimum for wanted in demands], several)


TINY = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=4)


@given(
    sizes=TINY,
    servers_=st.tuples(st.integers(0, 2), st.integers(1, 3)),
    workers_=st.tuples(st.integers(1, 6), st.integers(0, 1)),
)
@settings(max_examples=300, deadline=None)
def test_no_search_finds_fewer_nodes_for_equal_replicas_and_at_most_one_fewer_for_different_ones(
    sizes: list[tuple[int, int]], servers_: tuple[int, int], workers_: tuple[int, int]
) -> None:
    nodes = [node(f"n{index}", gpus, cpu) for index, (gpus, cpu) in enumerate(sizes)]
    demands = [servers(nodes, *servers_), demand(WORKER, nodes, workers_[0], {NVIDIA_GPU: workers_[1], CPU: 1})]
    least = next(
        (count for count in range(1, 5) for several in combinations(nodes, count) if takes_all(several, demands)), None
    )

    found = assign(demands, NodeLedger.of_free(nodes))

    if least is None:
        assert found is None
    elif found is not None:
        assert len(set(found.values())) <= least + (servers_[0] > 0)
    else:
        assert servers_[0] > 0


def room(ledger: NodeLedger, wanted: Demand) -> Amounts:
    return ledger.room(ledger.requests.of(wanted))


def test_what_is_known_of_nodes_is_told_anew_when_they_change() -> None:
    nodes = [node("a", 4), node("b", 4)]
    wanted = workers(nodes, 1)
    ledger = NodeLedger.of_free(nodes)
    assert room(ledger, wanted).tolist() == [4, 4]
    ledger.take("b", {NVIDIA_GPU: 3})
    other = ledger.copy()
    other.release([("b", {NVIDIA_GPU: 1}, 1)])
    assert (room(ledger, wanted).tolist(), room(other, wanted).tolist()) == (
        [4, 1],
        [4, 2],
    )
    assert np.argmin(ledger.free_scores()) == 1


@given(
    scene=SCENES,
    steps=st.lists(
        st.tuples(st.sampled_from(["take", "give", "ask"]), st.integers(0, 5), st.integers(0, 2)), max_size=12
    ),
)
@settings(max_examples=150, deadline=None)
def test_what_a_ledger_remembers_is_what_a_new_one_would_find_or_has_missed_since_something_was_given(
    scene: tuple[list[NodeState], list[Demand]], steps: list[tuple[str, int, int]]
) -> None:
    nodes, demands = scene
    ledger = NodeLedger.of_free(nodes)
    # A search that finds nothing may find something where there is less; nobody asks it again before there is more.
    has_missed = False
    for step, number, amount in steps:
        name, wanted = nodes[number % len(nodes)].name, {NVIDIA_GPU: amount, CPU: 1}
        if step == "give":
            ledger.release([(name, wanted, 1)])
            has_missed = False
        elif step == "take" and ledger.fits(name, wanted):
            ledger.take(name, wanted)
        anew = NodeLedger.of_free([replace(state, free=ledger.free(state.name)) for state in nodes])
        has_missed = has_missed or not is_feasible(demands, anew)
        assert is_feasible(demands, ledger) == (not has_missed)
        assert assign(demands, ledger.copy()) == (None if has_missed else assign(demands, anew))
        for demand_ in demands:
            recounted = NodeLedger(ledger.nodes, ledger.table.copy(), ledger.requests)
            assert (room(ledger, demand_) == room(recounted, demand_)).all()


@given(
    scene=SCENES,
    steps=st.lists(
        st.tuples(st.sampled_from(["take", "give", "ask"]), st.integers(0, 5), st.integers(0, 2)), max_size=12
    ),
)
@settings(max_examples=100, deadline=None)
def test_what_is_known_of_too_little_now_is_true_of_soon(
    scene: tuple[list[NodeState], list[Demand]], steps: list[tuple[str, int, int]]
) -> None:
    nodes, demands = scene
    nodes = [replace(state, releasing={NVIDIA_GPU: number % 2}) for number, state in enumerate(nodes)]
    inventory = Inventory.of(nodes)
    now = NodeLedger.of_free(inventory, Memory().of(inventory, ()))
    soon = now.with_releasing()
    for step, number, amount in steps:
        name, wanted = nodes[number % len(nodes)].name, {NVIDIA_GPU: amount, CPU: 1}
        if step == "give":
            soon.release([(name, wanted, 1)])
        elif step == "take" and now.fits(name, wanted):
            now.take(name, wanted)
            soon.take(name, wanted)
        for ledger in (now, soon):
            is_feasible(demands, ledger)
            for demand_ in demands:
                there = room(NodeLedger(ledger.nodes, ledger.table.copy(), ledger.requests), demand_)
                is_too_little = int(np.minimum(there, demand_.minimum).sum()) < demand_.minimum
                assert is_too_little or not ledger.is_known_to_lack(ledger.requests.of(demand_), demand_.minimum)


def test_what_a_gang_holds_is_told_anew_when_one_of_it_has_finished() -> None:
    nodes = [node("a", 4), node("b", 4)]
    inventory = Inventory.of(nodes)
    held = {Replica(WORKER, 0): "a", Replica(WORKER, 1): "b"}
    gang = RunningGang(name="job", demands=[workers(nodes, 2)], nodes=held, is_elastic=False)
    assert inventory.allocation_of(gang)[0].tolist() == [0, 1]
    assert inventory.allocation_of(replace(gang, finished=frozenset({Replica(WORKER, 0)})))[0].tolist() == [1]
