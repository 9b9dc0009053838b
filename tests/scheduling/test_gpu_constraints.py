"""Who may share a GPU with whom: KubeShare's GPUID, affinity, anti-affinity and exclusion."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.base.gpu_constraints import GpuConstraints, mark_names
from tarragon.base.resources import CPU, add_resources
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import CHIEF
from tarragon.job.model import Replica
from tarragon.scheduling.api.decision import INSUFFICIENT_RESOURCES, NEVER_FITS, QUOTA_EXCEEDED, Admit
from tarragon.scheduling.api.gpu_shares import VgpuShare
from tarragon.scheduling.api.rules import SchedulingRules
from tarragon.scheduling.cycle.decision_validation import validate_decisions
from tarragon.scheduling.explain.reasons import explain_wait
from tarragon.scheduling.policies import POLICIES
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import NodeLedger
from tests.scheduling.rounds import GIB, Job, Rounds, Run, gpus, shared_gpus, with_marks, with_share
from tests.scheduling.scenes import STANDARD, every_policy
from tests.scheduling.test_gpu_shares import NODES, jobs_with, places, submit_in_turn
from tests.scheduling.test_policies import RULES
from tests.scheduling.test_remembered import Remembering

VALUES = ("a", "b")


def sharing(name: str, *nodes: int, rules: SchedulingRules = STANDARD, grace: float = 0) -> Rounds:
    """Nodes by their GPUs, on which constraints are counted."""
    shapes = {
        f"n{index:02}": {**with_marks(shared_gpus(number), VALUES), CPU: 8000} for index, number in enumerate(nodes)
    }
    return Rounds(policy=POLICIES[name], nodes=shapes, rules=rules, grace=grace)


def submit(rounds: Rounds, name: str, count: int = 1, request: int = 300, **constraints: str) -> None:
    """Submit a job whose workers have these constraints, and let the policy decide."""
    share = VgpuShare(request, constraints=GpuConstraints(**constraints))
    rounds.submit(Job(name=name, demands=[with_share(rounds.demand(WORKER, count, each={CPU: 100}), share)]))
    rounds.advance(1)


@every_policy
def test_pods_with_the_same_anti_affinity_share_no_gpu(name: str) -> None:
    rounds = sharing(name, 3)
    submit(rounds, "spread", 2, anti_affinity="a")
    submit(rounds, "other", 2, anti_affinity="b")
    submit(rounds, "third", anti_affinity="a")
    submit(rounds, "fourth", anti_affinity="a")

    assert places(rounds, "spread") == ["n00/0", "n00/1"]
    assert places(rounds, "other") == ["n00/0", "n00/1"]
    assert places(rounds, "third") == ["n00/2"]
    assert rounds.waits["fourth"].code == INSUFFICIENT_RESOURCES


@every_policy
def test_a_gang_that_is_to_be_spread_over_more_gpus_than_there_are_never_fits(name: str) -> None:
    rounds = sharing(name, 2, 1)
    submit(rounds, "spread", 4, anti_affinity="a")

    assert rounds.waits["spread"].code == NEVER_FITS


@every_policy
def test_pods_with_the_same_exclusion_have_gpus_of_their_own(name: str) -> None:
    rounds = sharing(name, 3)
    submit(rounds, "anybody")
    submit(rounds, "mine", exclusion="a")
    submit(rounds, "also mine", exclusion="a")
    submit(rounds, "yours", exclusion="b")
    submit(rounds, "anybody else")
    submit(rounds, "nobody", exclusion="c")

    assert {job: places(rounds, job) for job in rounds.running} == {
        "anybody": ["n00/0"],
        "mine": ["n00/1"],
        "also mine": ["n00/1"],
        "yours": ["n00/2"],
        "anybody else": ["n00/0"],
    }


@every_policy
def test_a_pod_with_an_affinity_joins_its_like_or_takes_an_unused_gpu(name: str) -> None:
    rounds = sharing(name, 3)
    submit(rounds, "anybody", request=600)
    submit(rounds, "first", affinity="a")
    submit(rounds, "joins", affinity="a")
    submit(rounds, "anybody else", request=400)
    submit(rounds, "no room", affinity="a", request=500)
    submit(rounds, "waits", affinity="b")

    assert {job: places(rounds, job) for job in rounds.running} == {
        "anybody": ["n00/0"],
        "first": ["n00/1"],
        "joins": ["n00/1"],
        "anybody else": ["n00/0"],
        "no room": ["n00/2"],
    }


@every_policy
def test_a_gpu_of_the_same_affinity_comes_before_an_unused_one_that_wastes_less(name: str) -> None:
    rounds = sharing(name, 2)
    submit(rounds, "first", affinity="a", request=100)
    submit(rounds, "joins", affinity="a", request=500)

    assert places(rounds, "first") == places(rounds, "joins")


@every_policy
def test_a_gpuid_is_one_gpu_of_its_node(name: str) -> None:
    rounds = sharing(name, 2, 1)
    submit(rounds, "abcde", 2, gpu_id="abcde")
    submit(rounds, "anybody", request=100)
    submit(rounds, "does not fit there", gpu_id="abcde", request=500)
    submit(rounds, "fits nowhere", gpu_id="abcde", request=600)

    assert {job: places(rounds, job) for job in rounds.running} == {
        "abcde": ["n01/0", "n01/0"],
        "anybody": ["n01/0"],
        "does not fit there": ["n00/0"],
    }


@every_policy
def test_a_gang_whose_replicas_exclude_each_other_gets_several_gpus(name: str) -> None:
    rounds = sharing(name, 2)
    chief = VgpuShare(300, constraints=GpuConstraints(exclusion="a"))
    worker = VgpuShare(300, constraints=GpuConstraints(exclusion="b"))
    demands = [
        with_share(rounds.demand(CHIEF, 1, each={CPU: 100}), chief),
        with_share(rounds.demand(WORKER, 3, each={CPU: 100}), worker),
    ]
    for job in ("job", "another"):
        rounds.submit(Job(name=job, demands=demands))
        rounds.advance(1)

    assert len(set(rounds.running["job"].nodes.values())) == 2
    assert rounds.waits["another"].code == INSUFFICIENT_RESOURCES


@every_policy
def test_of_a_gang_those_who_need_an_unused_gpu_choose_before_those_who_may_join_them(name: str) -> None:
    rounds = sharing(name, 1)
    demands = [
        with_share(rounds.demand(CHIEF, 1, each={CPU: 100}), VgpuShare(500)),
        with_share(rounds.demand(WORKER, 1, each={CPU: 100}), VgpuShare(200, constraints=GpuConstraints(affinity="a"))),
    ]
    rounds.submit(Job(name="job", demands=demands))
    rounds.advance(1)

    assert places(rounds, "job") == ["n00/0", "n00/0"]


def test_a_decision_that_breaks_a_constraint_is_not_applied() -> None:
    rounds = sharing("backfill", 2)
    submit(rounds, "abcde", gpu_id="abcde")
    submit(rounds, "apart", anti_affinity="a", exclusion="b")
    share = VgpuShare(300, constraints=GpuConstraints(gpu_id="abcde"))
    for name, each in {
        "same": share,
        "apart too": replace(share, constraints=GpuConstraints(anti_affinity="a")),
    }.items():
        rounds.submit(Job(name=name, demands=[with_share(rounds.demand(WORKER, 1, each={}), each)]))
    elsewhere = [Admit(name, {Replica(WORKER, 0): "n00/1"}) for name in ("same", "apart too")]

    checked = validate_decisions(rounds.snapshot(), elsewhere)

    assert [fault.reason for fault in checked.violations] == ["worker-0 may not share n00/1 with its pods"] * 2


VALUE = st.sampled_from(["", "", *VALUES])
CONSTRAINTS = st.builds(GpuConstraints, gpu_id=VALUE, affinity=VALUE, anti_affinity=VALUE, exclusion=VALUE)
JOBS = jobs_with(
    st.none()
    | st.builds(VgpuShare, st.integers(1, 1000), st.none() | st.integers(0, 18).map(lambda gib: gib * GIB), CONSTRAINTS)
)


@every_policy
@settings(max_examples=25, deadline=None)
@given(nodes=NODES, jobs=JOBS, grace=st.sampled_from([0, 7]))
def test_whoever_comes_nobody_shares_a_gpu_with_whom_he_must_not(
    name: str, nodes: list[int], jobs: list[dict[str, object]], grace: int
) -> None:
    rounds = sharing(name, *nodes, grace=grace)

    submit_in_turn(rounds, jobs)
    rounds.advance(3000)

    assert not rounds.running
    waits = {waits.code for waits in rounds.waits.values()}
    assert waits <= {NEVER_FITS, QUOTA_EXCEEDED}, "on an empty cluster nobody waits for others"


@every_policy
@settings(max_examples=5, deadline=None)
@given(nodes=NODES, jobs=JOBS, grace=st.sampled_from([0, 7]), rules=st.sampled_from([STANDARD, RULES]))
def test_what_is_remembered_changes_no_decision_about_constraints(
    name: str, nodes: list[int], jobs: list[dict[str, object]], grace: int, rules: SchedulingRules
) -> None:
    rounds = sharing(name, *nodes, rules=rules, grace=grace)
    rounds.policy = Remembering(POLICIES[name])

    submit_in_turn(rounds, jobs)
    rounds.advance(200)


@settings(max_examples=100, deadline=None)
@given(
    nodes=NODES,
    shares=st.lists(st.builds(VgpuShare, st.integers(1, 1000), constraints=CONSTRAINTS), min_size=1, max_size=12),
)
def test_room_is_the_same_for_tables_and_rows_and_can_all_be_taken(nodes: list[int], shares: list[VgpuShare]) -> None:
    rounds = sharing("fifo", *nodes)
    ledger = NodeLedger.of_free(Inventory.of(rounds.snapshot().nodes))
    vgpus = ledger.nodes.layout.vgpus
    if vgpus is None:
        return
    for share in shares:
        room = vgpus.room(share, lambda column: ledger.table[:, column])
        for row, times in enumerate(room.tolist()):
            free: list[int] = ledger.table[row].tolist()
            assert vgpus.times_in(share, free) == times
            taken = 0
            while (number := vgpus.choose(share, free)) is not None:
                assert vgpus.permits(share, free, number)
                vgpus.take(share, free, number)
                taken += 1
            assert taken == times
        request = ledger.requests.of(with_share(rounds.demand(WORKER, 1, each={}), share))
        row = int(room.argmax())
        if room[row]:
            ledger.take_replicas(row, request, 1)


def test_a_second_pod_with_the_same_anti_affinity_on_a_vgpu_does_no_harm_to_the_next_vgpu() -> None:
    apart = GpuConstraints(anti_affinity="a")
    marks = add_resources([apart.marks(40, 300), apart.marks(40, 300)])

    permitted = [number for number in range(64) if apart.permit(number, 300, lambda name: marks.get(name, 0))]

    assert permitted == [number for number in range(64) if number != 40]
    assert marks.keys() < set(mark_names(64, ["a"]))


def test_it_is_told_which_constraint_bars_a_gang_from_gpus_with_enough_left() -> None:
    rounds = sharing("backfill", 2)
    submit(rounds, "spread", 2, anti_affinity="a")
    submit(rounds, "again", anti_affinity="a")
    submit(rounds, "mine", 2, exclusion="b")
    submit(rounds, "large", request=800)

    assert {job: wait.message for job, wait in rounds.waits.items()} == {
        "again": "GPUs have 0.3 left, but none that kubeshare/sched_anti-affinity permits",
        "mine": "GPUs have 0.3 left, but none that kubeshare/sched_exclusion permits",
        "large": "no GPU has 0.8 left (most: 0.7 on vGPU 0 of node n00)",
    }
    (found,) = explain_wait("again", rounds.snapshot()).nodes
    assert (found.room, found.lacking, found.barred_by) == (0, {}, "kubeshare/sched_anti-affinity")


def test_it_is_told_that_the_exclusion_of_others_bars_a_gang() -> None:
    rounds = sharing("backfill", 1)
    submit(rounds, "mine", exclusion="b")
    submit(rounds, "anybody")

    assert (
        rounds.waits["anybody"].message
        == "GPUs have 0.3 left, but none that kubeshare/sched_exclusion of other pods permits"
    )


def test_it_is_told_for_how_many_replicas_permitted_gpus_have_room() -> None:
    rounds = sharing("backfill", 3)
    submit(rounds, "first", anti_affinity="a")
    submit(rounds, "spread", 3, anti_affinity="a")
    submit(rounds, "too many", 4, anti_affinity="b")

    assert rounds.waits["spread"].message == ("with kubeshare/sched_anti-affinity, GPUs have room for 2 of 3 workers")
    assert rounds.waits["too many"].message == (
        "even when empty, the GPUs of the cluster have room for 3 of 4 workers, which need 0.3 of one each with "
        "kubeshare/sched_anti-affinity"
    )


@pytest.mark.parametrize("name", ["fifo", "backfill", "dragon"])
@pytest.mark.parametrize("constraints", [{"affinity": "a"}, {"gpu_id": "abcde"}])
def test_nobody_joins_a_pod_for_which_a_gpu_is_only_reserved(name: str, constraints: dict[str, str]) -> None:
    rounds = sharing(name, 1)
    submit(rounds, "anybody")
    submit(rounds, "overdue", 1, 300, **constraints)
    rounds.advance(200)
    submit(rounds, "like it", 1, 300, **constraints)
    submit(rounds, "passes", request=100)
    rounds.advance(100)
    rounds.end("anybody")
    rounds.advance(1)

    assert "overdue" in rounds.running


def test_marks_of_a_vgpu_that_nobody_uses_mean_nothing() -> None:
    left = {**GpuConstraints(exclusion="old").marks(0, 300), **GpuConstraints(anti_affinity="a").marks(0, 300)}

    for constraints in (GpuConstraints(), GpuConstraints(anti_affinity="a"), GpuConstraints(exclusion="new")):
        assert constraints.permit(0, 0, lambda name: left.get(name, 0))


def test_of_two_vgpus_with_one_gpuid_either_is_permitted() -> None:
    rounds = sharing("backfill", 3)
    share = VgpuShare(300, constraints=GpuConstraints(gpu_id="abcde"))
    rounds.foreign = {"n00": add_resources([share.amounts(0, 16 * GIB), share.amounts(1, 16 * GIB)])}
    submit(rounds, "abcde", 2, gpu_id="abcde", request=300)

    assert set(places(rounds, "abcde")) <= {"n00/0", "n00/1"}


@pytest.mark.parametrize("name", ["dragon", "elastic"])
def test_of_jobs_that_grow_onto_one_gpu_the_one_that_needs_it_unused_is_first(name: str) -> None:
    rounds = sharing(name, 2, 1)
    red = VgpuShare(400, constraints=GpuConstraints(affinity="a"))
    for job, share, place, most in (("a-free", VgpuShare(600), "n00/0", 2), ("red", red, "n01/0", 5)):
        demand = with_share(rounds.demand(WORKER, 1, least=1, most=most, each={CPU: 100}), share)
        rounds.running[job] = Run(
            job=Job(name=job, demands=[demand]),
            queued=rounds.now,
            admitted=rounds.now,
            nodes={Replica(WORKER, 0): place},
        )
    rounds.advance(400)

    assert rounds.size("red") > 1


def test_nodes_that_share_no_gpus_are_not_said_to_have_some_left() -> None:
    rounds = sharing("backfill", 1)
    rounds.nodes = {**rounds.nodes, "n01": {**gpus(2), CPU: 8000}}
    submit(rounds, "first", request=800)
    submit(rounds, "second", request=500)

    assert rounds.waits["second"].message == "no GPU has 0.5 left (most: 0.2 on vGPU 0 of node n00)"
