"""What the scheduler decides is always possible, also when it is judged anew; what it could not decide is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.base.resources import CPU, NVIDIA_GPU, Resources, add_resources, subtract
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import Replica
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot
from tarragon.scheduling.cycle.admission_verification import AdmissionClaim, AdmissionVerifier
from tests.scheduling.rounds import NOON, gpus
from tests.scheduling.scenes import STANDARD, every_policy, scene
from tests.scheduling.test_policies import JOBS, NODES, RULES, job_of

SCENE = Snapshot(
    now=NOON,
    nodes=[
        NodeState(name="full", capacity=gpus(4), free=gpus(0)),
        NodeState(name="half", capacity=gpus(4), free=gpus(2)),
        NodeState(name="idle", capacity=gpus(4), free=gpus(4)),
    ],
    unavailable_nodes=[NodeState(name="away", capacity=gpus(4), free=gpus(4), unavailable_reason="is not ready")],
    rules=SchedulingRules(queues={"small": QueueRules(quota=gpus(2))}),
)


def claim(
    nodes: Mapping[int, str],
    *,
    size: int | None = None,
    known: Mapping[int, str] | None = None,
    queue: str = "large",
    has_run: bool = False,
) -> AdmissionClaim:
    """Of a job that asks for 2 to 4 workers with a GPU each."""
    demand = scene("fifo").workers(3, least=2, most=4)
    demand = replace(demand, eligible_nodes=frozenset({"full", "half", "idle", "away"}))
    placed = {Replica(WORKER, index): node for index, node in nodes.items()}
    return AdmissionClaim(
        gang=RunningGang(name="job", demands=[demand], nodes=placed, is_elastic=True, queue=queue),
        size={WORKER: len(nodes) if size is None else size},
        accepted={Replica(WORKER, index): node for index, node in (known or {}).items()},
        had_pods=has_run,
    )


def why(claim: AdmissionClaim) -> str | None:
    return AdmissionVerifier(SCENE).rejection(claim)


@pytest.mark.parametrize(
    ("forged", "words"),
    [
        (claim({0: "idle", 1: "full"}), "node full has no room for worker-1"),
        (claim({0: "half", 1: "half", 2: "half"}), "node half has no room for worker-2"),
        (claim({0: "idle", 1: "ghost"}), "there is no node ghost"),
        (claim({0: "idle", 1: "away"}), "node away is not ready"),
        (claim({0: "idle", 1: ""}), "worker-1 has no node"),
        (claim({0: "idle"}), "1 workers are not between 2 and 4"),
        (claim(dict.fromkeys(range(5), "idle")), "5 workers are not between 2 and 4"),
        (claim({0: "idle", 1: "idle"}, size=5), "5 workers are not between 2 and 4"),
        (claim({0: "idle", 1: "idle"}, size=3), "not every replica has a node"),
        (claim({0: "idle", 7: "idle"}), "the job has no worker-7"),
        (claim({0: "idle", 1: "idle", 2: "idle"}, queue="small"), "small would hold more than its quota of 2 nvidia"),
        (claim({0: "full", 1: "idle"}, known={0: "idle", 1: "idle"}), "node full has no room for worker-0"),
        (claim({0: "idle", 1: "full"}, has_run=True), "node full has no room for worker-1"),
    ],
)
def test_what_could_never_have_been_decided_is_refused(forged: AdmissionClaim, words: str) -> None:
    assert words in (why(forged) or "")


@pytest.mark.parametrize(
    "honest",
    [
        claim({0: "idle", 1: "idle", 2: "half"}),
        claim({0: "half", 1: "half", 3: "idle"}),
        claim({0: "idle", 1: "half"}, queue="small"),
        claim({0: "full", 1: "ghost", 2: "away"}, known={0: "full", 1: "ghost", 2: "away"}),
        claim({0: "full", 1: "full", 2: "full"}, known=dict.fromkeys(range(3), "full"), queue="small"),
        claim({0: "full"}, known={0: "full"}),
        claim(dict.fromkeys(range(9), "full"), known=dict.fromkeys(range(9), "full")),
        claim({0: "ghost", 1: "away"}, has_run=True),
        claim({0: "idle", 1: "idle"}, size=4, has_run=True),
    ],
)
def test_what_counted_before_and_nodes_that_a_job_has_lost_are_no_fault(honest: AdmissionClaim) -> None:
    assert why(honest) is None


def test_a_type_that_the_job_does_not_ask_for_is_refused() -> None:
    forged = claim({0: "idle", 1: "idle"})
    servers = {**forged.gang.nodes, Replica(PS, 0): "idle"}
    forged = replace(forged, gang=replace(forged.gang, nodes=servers), size={**forged.size, PS: 1})

    assert why(forged) == "1 pss are not between 0 and 0"


def test_what_one_claim_takes_the_next_one_can_not_have() -> None:
    claims = AdmissionVerifier(SCENE)
    first, second = claim(dict.fromkeys(range(4), "idle")), claim({0: "idle", 1: "half"})

    assert claims.rejection(first) is None
    assert claims.rejection(second) == "node idle has no room for worker-0"
    assert claims.rejection(claim({0: "half", 1: "half"})) is None


def test_a_refused_claim_takes_nothing_and_counts_for_no_quota() -> None:
    claims = AdmissionVerifier(SCENE)
    assert claims.rejection(claim({0: "half", 1: "half", 2: "full"}, queue="large")) is not None
    assert claims.rejection(claim({0: "half", 1: "full"}, queue="small")) is not None

    assert claims.rejection(claim({0: "half", 1: "half"}, queue="small")) is None


def of(run: RunningGang, known: Mapping[Replica, str]) -> AdmissionClaim:
    return AdmissionClaim(gang=run, size=Counter(replica.type for replica in run.nodes), accepted=known)


def with_none_of_them(seen: Snapshot) -> Snapshot:
    """As an operator sees it that begins, none of whose jobs has a pod: nothing on record counts yet."""
    held: dict[str, list[Resources]] = {}
    for run in seen.running:
        each = {demand.type: demand.resources for demand in run.demands}
        for replica, node in run.nodes.items():
            held.setdefault(node, []).append(each[replica.type])
    nodes = [replace(node, free=add_resources([node.free, *held.get(node.name, [])])) for node in seen.nodes]
    return replace(seen, nodes=nodes, running=[])


@every_policy
@settings(max_examples=25, deadline=None)
@given(nodes=NODES, jobs=JOBS, grace=st.sampled_from([0, 7]), rules=st.sampled_from([STANDARD, RULES]))
def test_whatever_the_scheduler_has_decided_is_possible_for_the_next_operator(
    name: str, nodes: list[int], jobs: list[dict[str, int]], grace: int, rules: SchedulingRules
) -> None:
    rounds = scene(name, *nodes, rules=rules, grace=grace)
    for number, facts in enumerate(jobs):
        rounds.submit(job_of(rounds, f"job{number}", facts))
        rounds.advance(facts["after"])
        seen = rounds.snapshot()
        claims = AdmissionVerifier(with_none_of_them(seen))

        assert [claims.rejection(of(run, {})) for run in seen.running] == [None] * len(seen.running)


def other_bounds(demand: Demand) -> Demand:
    return replace(demand, minimum=min(demand.minimum, 1), requested=1, maximum=1, eligible_nodes=frozenset())


@every_policy
@settings(max_examples=15, deadline=None)
@given(nodes=NODES, jobs=JOBS, lost=st.integers(0, 4), quota=st.integers(0, 3))
def test_whatever_happens_later_takes_nothing_that_counted(
    name: str, nodes: list[int], jobs: list[dict[str, int]], lost: int, quota: int
) -> None:
    """Nodes go, others shrink or are taken by pods of others, the quota is lowered, the job is edited."""
    rounds = scene(name, *nodes, rules=RULES)
    for number, facts in enumerate(jobs):
        rounds.submit(job_of(rounds, f"job{number}", facts))
        rounds.advance(facts["after"])
    seen = rounds.snapshot()
    rules = replace(RULES, queues={queue: QueueRules(quota=gpus(quota)) for queue in "abc"})
    left = [replace(node, capacity=gpus(1), free=subtract(node.free, gpus(9))) for node in list(seen.nodes)[lost:]]
    edited = [replace(run, demands=[other_bounds(demand) for demand in run.demands]) for run in seen.running]
    claims = AdmissionVerifier(replace(seen, nodes=left, rules=rules))

    assert [claims.rejection(of(run, run.nodes)) for run in edited] == [None] * len(edited)


@settings(max_examples=60, deadline=None)
@given(nodes=NODES, jobs=JOBS, forged=st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_no_claim_that_counts_oversells_a_node_or_exceeds_a_quota(
    nodes: list[int], jobs: list[dict[str, int]], forged: list[int]
) -> None:
    rounds = scene("backfill", *nodes, rules=RULES)
    for number, facts in enumerate(jobs):
        rounds.submit(job_of(rounds, f"job{number}", facts))
        rounds.advance(facts["after"])
    seen = rounds.snapshot()
    demand = rounds.workers(len(forged), least=1)
    places = {Replica(WORKER, index): f"n{node:02}" for index, node in enumerate(forged)}
    gang = RunningGang(name="forged", demands=[demand], nodes=places, is_elastic=False, queue="a")

    is_possible = AdmissionVerifier(seen).rejection(of(gang, {})) is None

    free = {node.name: node.free.get(NVIDIA_GPU, 0) for node in seen.nodes}
    asked = Counter(places.values())
    fits = all(number * 1000 <= free.get(node, -1) for node, number in asked.items())
    held = sum(
        demand.resources.get(NVIDIA_GPU, 0) * sum(replica.type == demand.type for replica in run.nodes)
        for run in seen.running
        if run.queue == "a"
        for demand in run.demands
    )
    assert is_possible == (fits and held + 1000 * len(forged) <= RULES.queues["a"].quota[NVIDIA_GPU])
    assert CPU not in demand.resources
