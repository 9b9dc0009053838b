"""GPUs in fractions: what is open is filled first, nothing is oversold, and whole and shared GPUs go side by side."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.base.resources import CPU, GPU_MEMORY, subtract
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import CHIEF, PS
from tarragon.job.model import Replica
from tarragon.job.places import node_of
from tarragon.scheduling.actions.resize_to_target import MOVED_TOGETHER
from tarragon.scheduling.api.decision import INSUFFICIENT_RESOURCES, NEVER_FITS, QUOTA_EXCEEDED, Admit, Resize
from tarragon.scheduling.api.gpu_shares import VgpuShare
from tarragon.scheduling.api.rules import SchedulingRules
from tarragon.scheduling.api.snapshot import (
    Demand,
    DomainMap,
    NodeState,
    RunningGang,
    Snapshot,
    TopologyConstraint,
    WaitingGang,
)
from tarragon.scheduling.cycle.decision_validation import validate_decisions
from tarragon.scheduling.placement.fit import assign
from tarragon.scheduling.policies import POLICIES
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import NodeLedger
from tests.scheduling.rounds import GIB, NOON, Job, Rounds, gpus, shared_gpus, with_share
from tests.scheduling.scenes import STANDARD, afresh, every_policy
from tests.scheduling.test_policies import RULES
from tests.scheduling.test_remembered import Remembering

HALF = VgpuShare(500, 3 * GIB)


def sharing(name: str, *nodes: int, rules: SchedulingRules = STANDARD, grace: float = 0, memory: int = 16) -> Rounds:
    """Nodes by their GPUs, which may be shared, with CPUs for all."""
    shapes = {f"n{index:02}": {**shared_gpus(number, memory), CPU: 8000} for index, number in enumerate(nodes)}
    return Rounds(policy=POLICIES[name], nodes=shapes, rules=rules, grace=grace)


def part(rounds: Rounds, name: str, share: VgpuShare, count: int = 1, length: float | None = None) -> Job:
    """A job whose workers need such a part of a GPU each."""
    workers = with_share(rounds.demand(WORKER, count, each={CPU: 1000}), share)
    return Job(name=name, demands=[workers], length=length)


def places(rounds: Rounds, name: str) -> list[str]:
    return sorted(rounds.running[name].nodes.values())


@every_policy
def test_four_halves_take_two_gpus(name: str) -> None:
    rounds = sharing(name, 4)
    rounds.submit(part(rounds, "job", HALF, 4))
    rounds.advance(1)

    assert places(rounds, "job") == ["n00/0", "n00/0", "n00/1", "n00/1"]


@every_policy
def test_a_share_goes_where_least_is_left(name: str) -> None:
    rounds = sharing(name, 2, 2)
    for job, request in {"small": 300, "large": 600}.items():
        rounds.submit(part(rounds, job, VgpuShare(request, GIB)))
        rounds.advance(1)
    rounds.submit(part(rounds, "second", VgpuShare(600, GIB)))
    rounds.advance(1)
    rounds.submit(part(rounds, "fits", VgpuShare(400, GIB)))
    rounds.advance(1)

    assert places(rounds, "small") == places(rounds, "large") == ["n00/0"]
    assert places(rounds, "fits") == places(rounds, "second")


@every_policy
def test_whole_and_shared_gpus_go_side_by_side_on_one_node(name: str) -> None:
    rounds = sharing(name, 2)
    rounds.submit(Job(name="whole", demands=[rounds.workers(1, each={**gpus(1), CPU: 1000})]))
    rounds.advance(1)
    rounds.submit(part(rounds, "halves", HALF, 2))
    rounds.advance(1)
    rounds.submit(part(rounds, "one too many", HALF))
    rounds.advance(1)

    assert places(rounds, "whole") == ["n00"]
    assert places(rounds, "halves") == ["n00/0", "n00/0"]
    assert rounds.waits["one too many"].code == INSUFFICIENT_RESOURCES


@every_policy
def test_a_gpu_can_be_had_whole_again_once_the_last_share_is_gone(name: str) -> None:
    rounds = sharing(name, 1)
    rounds.submit(part(rounds, "first", HALF, length=10))
    rounds.submit(part(rounds, "second", HALF, length=20))
    rounds.advance(1)
    rounds.submit(Job(name="whole", demands=[rounds.workers(1)]))
    rounds.advance(12)

    assert rounds.ended == ["first"]
    assert "whole" in rounds.waiting

    rounds.advance(12)

    assert places(rounds, "whole") == ["n00"]


@every_policy
def test_memory_limits_how_many_share_a_gpu(name: str) -> None:
    rounds = sharing(name, 1, memory=16)
    rounds.submit(part(rounds, "large", VgpuShare(100, 10 * GIB)))
    rounds.advance(1)
    rounds.submit(part(rounds, "too large", VgpuShare(100, 7 * GIB)))
    rounds.submit(part(rounds, "small", VgpuShare(100, 6 * GIB)))
    rounds.advance(1)

    assert set(rounds.running) == {"large", "small"}


@every_policy
def test_a_share_without_memory_gets_its_part_of_it(name: str) -> None:
    rounds = sharing(name, 1, memory=16)
    rounds.submit(part(rounds, "half", VgpuShare(500)))
    rounds.advance(1)
    rounds.submit(part(rounds, "the other half", VgpuShare(100, 8 * GIB)))
    rounds.advance(1)
    rounds.submit(part(rounds, "more than is left", VgpuShare(100, 1000)))
    rounds.advance(1)

    assert set(rounds.running) == {"half", "the other half"}


@every_policy
def test_more_memory_than_any_gpu_has_never_fits(name: str) -> None:
    rounds = sharing(name, 2, memory=16)
    rounds.submit(part(rounds, "huge", VgpuShare(500, 17 * GIB)))
    rounds.advance(1)

    assert rounds.waits["huge"].code == NEVER_FITS


@every_policy
def test_a_gang_whose_replicas_need_different_shares_starts_whole(name: str) -> None:
    rounds = sharing(name, 2)
    chief = with_share(rounds.demand(CHIEF, 1, each={CPU: 1000}), VgpuShare(700, GIB))
    workers = with_share(rounds.demand(WORKER, 4, each={CPU: 1000}), VgpuShare(300, GIB))
    rounds.submit(Job(name="fits", demands=[chief, workers]))
    rounds.advance(1)

    assert Counter(places(rounds, "fits")) == {"n00/0": 2, "n00/1": 3}


@every_policy
def test_quotas_count_fractions(name: str) -> None:
    rules = SchedulingRules(queues={"default": RULES.queues["a"]})  # six GPUs
    rounds = sharing(name, 8, rules=rules)
    for job, count in {"four GPUs": 8, "two GPUs": 4, "too many": 1}.items():
        workers = with_share(rounds.demand(WORKER, count, each={}), HALF)
        rounds.submit(Job(name=job, demands=[workers]))
        rounds.advance(1)

    assert set(rounds.running) == {"four GPUs", "two GPUs"}
    assert rounds.waits["too many"].code == QUOTA_EXCEEDED


PARTS = st.one_of(
    st.none(),
    st.builds(VgpuShare, st.integers(1, 1000), st.one_of(st.none(), st.integers(0, 18).map(lambda gib: gib * GIB))),
)


def jobs_with(parts: st.SearchStrategy[VgpuShare | None]) -> st.SearchStrategy[list[dict[str, object]]]:
    """Facts about jobs whose workers and chiefs need such parts of GPUs, or whole ones."""
    return st.lists(
        st.fixed_dictionaries(
            {
                "least": st.integers(0, 3),
                "more": st.integers(0, 3),
                "idle": st.integers(0, 2),
                "share": parts,
                "chief": parts,
                "chiefs": st.integers(0, 1),
                "servers": st.integers(0, 1),
                "length": st.integers(1, 90),
                "priority": st.sampled_from([0, 0, 0, 5, 10]),
                "queue": st.sampled_from(["a", "b", "c"]),
                "preempts": st.booleans(),
                "after": st.integers(0, 40),
            }
        ),
        max_size=9,
    )


SHARING_JOBS = jobs_with(PARTS)
NODES = st.lists(st.integers(0, 3), min_size=1, max_size=4)


def sharing_job(rounds: Rounds, name: str, facts: dict[str, object]) -> Job:
    def number(fact: str) -> int:
        return int(str(facts[fact]))

    def share(fact: str) -> VgpuShare | None:
        found = facts[fact]
        return found if isinstance(found, VgpuShare) else None

    least = number("least")
    wish = least + number("more")
    of_worker, of_chief = share("share"), share("chief")
    return Job(
        name=name,
        demands=[
            rounds.demand(PS, number("servers"), each={CPU: 1000}),
            with_share(rounds.demand(CHIEF, number("chiefs"), each={CPU: 500} if of_chief else gpus(1)), of_chief),
            with_share(
                rounds.demand(
                    WORKER, wish, least=least, most=wish + number("idle"), each={CPU: 500} if of_worker else gpus(1)
                ),
                of_worker,
            ),
        ],
        length=number("length"),
        priority=number("priority"),
        queue=str(facts["queue"]),
        preempts=bool(facts["preempts"]),
    )


def submit_in_turn(rounds: Rounds, jobs: list[dict[str, object]]) -> None:
    """Submit jobs with these facts, each some time after the one before."""
    for number, facts in enumerate(jobs):
        rounds.submit(sharing_job(rounds, f"job{number}", facts))
        rounds.advance(int(str(facts["after"])))


@every_policy
@settings(max_examples=40, deadline=None)
@given(nodes=NODES, jobs=SHARING_JOBS, grace=st.sampled_from([0, 7]), rules=st.sampled_from([STANDARD, RULES]))
def test_whatever_shares_come_no_gpu_is_oversold(
    name: str, nodes: list[int], jobs: list[dict[str, object]], grace: int, rules: SchedulingRules
) -> None:
    rounds = sharing(name, *nodes, rules=rules, grace=grace)

    submit_in_turn(rounds, jobs)
    rounds.advance(3000)

    assert not rounds.running
    waits = {waits.code for waits in rounds.waits.values()}
    assert waits <= {NEVER_FITS, QUOTA_EXCEEDED}, "on an empty cluster nobody waits for others"


def test_a_replica_that_stays_on_its_node_keeps_its_vgpu_when_others_join_it() -> None:
    """One of three GPUs is held whole: there is no room to go to another vGPU beside the one that it holds."""
    share, everywhere = VgpuShare(600), frozenset("ab")
    demand = with_share(
        Demand(type=WORKER, resources={}, minimum=1, requested=2, maximum=2, eligible_nodes=everywhere), share
    )
    held = {"a": {**share.amounts(2, 16 * GIB), **gpus(1)}, "b": share.amounts(0, 16 * GIB)}
    nodes = [
        NodeState(name=name, capacity=shared_gpus(3), free=subtract(shared_gpus(3), held[name])) for name in ("a", "b")
    ]
    gang = RunningGang(
        name="job",
        demands=[demand],
        nodes={Replica(WORKER, 0): "a/2", Replica(WORKER, 1): "b/0"},
        is_elastic=True,
        admitted_at=NOON,
    )
    (moved, *_) = afresh(POLICIES["elastic"])(Snapshot(now=NOON + dt.timedelta(hours=1), nodes=nodes, running=[gang]))

    assert moved == Resize("job", {Replica(WORKER, 0): "a/2", Replica(WORKER, 1): "a/0"}, MOVED_TOGETHER)


def test_only_the_shares_of_one_gpu_are_given_back_for_a_whole_one() -> None:
    """Four GPUs with four replicas each, of which every fourth is on the same one."""
    share, here = VgpuShare(250), frozenset("a")
    elastic = with_share(
        Demand(type=WORKER, resources={}, minimum=1, requested=16, maximum=16, eligible_nodes=here), share
    )
    places = {Replica(WORKER, index): f"a/{index % 4}" for index in range(16)}
    held = {name: 4 * amount for number in range(4) for name, amount in share.amounts(number, 16 * GIB).items()}
    node = NodeState(name="a", capacity=shared_gpus(4), free=subtract(shared_gpus(4), held))
    gang = RunningGang(name="elastic", demands=[elastic], nodes=places, is_elastic=True, admitted_at=NOON)
    whole = Demand(type=WORKER, resources=gpus(1), minimum=1, requested=1, eligible_nodes=here)
    starving = WaitingGang(name="starving", queued_at=NOON, demands=[whole])
    later = NOON + dt.timedelta(minutes=10)

    found = afresh(POLICIES["dragon"])(Snapshot(now=later, nodes=[node], running=[gang], waiting=[starving]))

    (resized,) = [each for each in found if isinstance(each, Resize)]
    assert sorted(replica.index for replica in places.keys() - resized.nodes.keys()) == [3, 7, 11, 15]


@every_policy
def test_what_an_urgent_job_preempts_for_is_not_taken_by_overdue_ones(name: str) -> None:
    """It needs three GPUs: its parts have so much memory that no two of them fit on one."""
    rounds = sharing(name, 1, 3, 2)
    rounds.submit(Job(name="first", demands=[rounds.workers(4, least=3)]))
    rounds.advance(40)
    rounds.submit(Job(name="second", demands=[rounds.workers(4, least=2)], priority=5))
    rounds.advance(40)
    chief = with_share(rounds.demand(CHIEF, 1, each={CPU: 500}), VgpuShare(116))
    parts = with_share(rounds.workers(4, least=2, each={CPU: 500}), VgpuShare(414, 15 * GIB))
    rounds.submit(Job(name="urgent", demands=[chief, parts], priority=10))
    rounds.advance(1)

    assert "urgent" in rounds.running


@every_policy
@settings(max_examples=8, deadline=None)
@given(nodes=NODES, jobs=SHARING_JOBS, grace=st.sampled_from([0, 7]), rules=st.sampled_from([STANDARD, RULES]))
def test_what_is_remembered_changes_no_decision_about_shares(
    name: str, nodes: list[int], jobs: list[dict[str, object]], grace: int, rules: SchedulingRules
) -> None:
    rounds = sharing(name, *nodes, rules=rules, grace=grace)
    rounds.policy = Remembering(POLICIES[name])

    submit_in_turn(rounds, jobs)
    rounds.advance(200)


def test_places_of_vgpus_name_their_node() -> None:
    assert [node_of(place) for place in ("n00", "n00/12")] == ["n00", "n00"]


@every_policy
def test_a_node_whose_gpus_are_not_shared_gets_no_share(name: str) -> None:
    nodes = {"n0": {**shared_gpus(1), CPU: 8000}, "n1": {**gpus(8), CPU: 8000}}
    rounds = Rounds(policy=POLICIES[name], nodes=nodes)
    for number in range(3):
        rounds.submit(part(rounds, f"job{number}", VgpuShare(600)))
    rounds.advance(1)

    assert [places(rounds, job) for job in rounds.running] == [["n0/0"]]


@every_policy
def test_absurd_memory_never_fits_and_stops_nobody(name: str) -> None:
    rounds = sharing(name, 1)
    rounds.submit(part(rounds, "absurd", VgpuShare(100, (2**63 - 1) * 1000)))
    rounds.submit(part(rounds, "small", VgpuShare(100, GIB)))
    rounds.advance(1)

    assert rounds.waits["absurd"].code == NEVER_FITS
    assert "small" in rounds.running


def test_a_decision_about_a_vgpu_that_its_node_does_not_have_is_not_applied() -> None:
    rounds = sharing("backfill", 1, 4)
    rounds.submit(part(rounds, "job", HALF))
    (replica,) = [Replica(WORKER, 0)]

    checked = validate_decisions(rounds.snapshot(), [Admit("job", {replica: "n00/3"})])

    assert [fault.reason for fault in checked.violations] == ["worker-0 would be on n00/3, which is not available"]


@settings(max_examples=200, deadline=None)
@given(
    nodes=NODES,
    before=st.lists(PARTS.filter(bool), max_size=6),
    shares=st.lists(st.tuples(PARTS, st.integers(1, 4)), min_size=1, max_size=3),
    is_spread=st.booleans(),
    is_priced=st.booleans(),
)
def test_what_is_found_for_several_shares_can_be_taken(
    nodes: list[int],
    before: list[VgpuShare],
    shares: list[tuple[VgpuShare | None, int]],
    is_spread: bool,  # noqa: FBT001 - an example's
    is_priced: bool,  # noqa: FBT001
) -> None:
    rounds = sharing("fifo", *nodes)
    inventory = Inventory.of(rounds.snapshot().nodes)
    ledger = NodeLedger.of_free(inventory)
    domains = DomainMap({name: name for name in rounds.nodes})
    spread = TopologyConstraint(domain_of=domains, counted_types=frozenset({WORKER}), max_skew=1)
    kinds = [WORKER, CHIEF, PS]
    wanted = [
        with_share(rounds.demand(kind, count, each={CPU: 100} if share else gpus(1)), share)
        for kind, (share, count) in zip(kinds, shares, strict=False)
    ]
    wanted = [replace(each, topology_constraints=(spread,)) if is_spread else each for each in wanted]
    for share in before:
        assign([with_share(rounds.demand(PS, 1, each={CPU: 100}), share)], ledger)
    if is_priced:
        ledger.worth = ledger.requests.worth_for([(ledger.requests.of(each), each.requested) for each in wanted])
    free = ledger.table.copy()

    found = assign(wanted, ledger)

    if found is not None:
        ledger.release_all(found, wanted)
    assert (ledger.table == free).all()


def test_a_node_that_claims_absurd_memory_stops_nobody() -> None:
    rounds = sharing("backfill", 1, 1)
    rounds.nodes = {**rounds.nodes, "n00": {**rounds.nodes["n00"], GPU_MEMORY: 10**30}}
    rounds.submit(part(rounds, "job", HALF))
    rounds.advance(1)

    assert "job" in rounds.running
