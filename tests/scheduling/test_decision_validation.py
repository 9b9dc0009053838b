"""What no policy may do is refused, and the rest of what it has decided goes on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

import pytest

from tarragon.base.resources import NVIDIA_GPU
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import Replica
from tarragon.scheduling.api.decision import INSUFFICIENT_RESOURCES, Admit, Decision, Defer, Evict, RequeueAt, Resize
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.cycle.decision_validation import validate_decisions

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
NODES = [NodeState(name=name, capacity={NVIDIA_GPU: 4}, free={NVIDIA_GPU: 2}) for name in ("a", "b")]


def workers(*nodes: str) -> Mapping[Replica, str]:
    return {Replica(WORKER, index): node for index, node in enumerate(nodes)}


def demand(least: int = 1, wish: int = 2, most: int = 3) -> Demand:
    each = {NVIDIA_GPU: 1}
    return Demand(
        type=WORKER, resources=each, minimum=least, requested=wish, maximum=most, eligible_nodes=frozenset({"a", "b"})
    )


def waits(name: str, demands: Sequence[Demand] = (demand(),)) -> WaitingGang:
    return WaitingGang(name=name, queued_at=NOON, demands=demands)


def runs(name: str, *nodes: str, demands: Sequence[Demand] = (demand(),)) -> RunningGang:
    return RunningGang(name=name, demands=demands, nodes=workers(*nodes), is_elastic=True)


SCENE = Snapshot(
    now=NOON,
    nodes=NODES,
    unavailable_nodes=[
        NodeState(name="c", capacity={NVIDIA_GPU: 4}, free={NVIDIA_GPU: 4}, unavailable_reason="is not ready")
    ],
    waiting=[waits("w"), waits("v")],
    running=[runs("r", "a", "a"), runs("s", "b")],
)


def why(*decisions: Decision, snapshot: Snapshot = SCENE) -> Sequence[str]:
    return [violation.reason for violation in validate_decisions(snapshot, decisions).violations]


def test_what_every_policy_may_do_goes_through() -> None:
    decisions: list[Decision] = [
        Admit("w", workers("a", "b")),
        Resize("r", workers("a")),
        Evict("s", "Preempted", "for v"),
        Defer("v", INSUFFICIENT_RESOURCES, "full"),
        RequeueAt(NOON),
    ]
    found = validate_decisions(SCENE, decisions)
    assert [*found.accepted, RequeueAt(NOON)] == decisions
    assert found.requeue_at == NOON


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Admit("w", workers("a", "a", "a")), "a has no room for worker-2"),
        (Admit("w", workers("c")), "worker-0 would be on c, which is not available"),
        (Admit("w", workers("nowhere")), "worker-0 would be on nowhere, which is not available"),
        (Admit("w", {}), "0 workers are not between 1 and 3"),
        (Admit("w", workers("a", "a", "b", "b")), "4 workers are not between 1 and 3"),
        (Admit("w", {Replica(WORKER, 1): "a"}), "the indexes of its workers have gaps"),
        (Admit("w", {**workers("a"), Replica(PS, 0): "a"}), "the job has no ps replicas"),
        (Admit("r", workers("a")), "it is not waiting"),
        (Admit("nobody", workers("a")), "it is not waiting"),
        (Resize("r", {}), "0 workers are not between 1 and 3"),
        (Resize("r", {Replica(WORKER, 1): "a"}), "worker-0 must not be removed"),
        (Resize("r", workers("a", "a", "b", "b")), "4 workers are not between 1 and 3"),
        (Resize("r", workers("b", "c")), "worker-1 would be on c, which is not available"),
        (Resize("w", workers("a")), "it is not running"),
        (Evict("w", "Preempted", "for v"), "it is not running"),
        (Defer("nobody", INSUFFICIENT_RESOURCES, "full"), "there is no such gang"),
    ],
)
def test_what_no_policy_may_do_is_refused(decision: Decision, said: str) -> None:
    assert why(decision) == [said]


def test_a_gang_is_decided_about_once() -> None:
    assert why(Admit("w", workers("a")), Admit("w", workers("b"))) == ["there is already a decision about it"]


def test_what_a_refused_gang_would_have_taken_is_there_for_the_next() -> None:
    decisions = [Admit("w", workers("a", "a", "c")), Admit("v", workers("a", "a"))]
    assert [violation.decision for violation in validate_decisions(SCENE, decisions).violations] == decisions[:1]


def test_a_node_is_not_sold_twice_to_two_gangs() -> None:
    assert why(Admit("w", workers("a", "a")), Admit("v", workers("a", "b"))) == ["a has no room for worker-0"]


def test_what_a_gang_gives_back_is_not_there_before_its_pods_have_ended() -> None:
    assert why(Resize("r", workers("a")), Admit("w", workers("a", "a", "a"))) == ["a has no room for worker-2"]


def test_a_gang_whose_bounds_were_edited_may_stay_outside_of_them_but_not_go_further() -> None:
    grown = Snapshot(now=NOON, nodes=NODES, running=[runs("r", "a", "a", demands=[demand(least=3, wish=3)])])
    assert not why(Resize("r", workers("b", "a")), snapshot=grown)
    assert why(Resize("r", workers("a")), snapshot=grown) == ["1 workers are not between 3 and 3"]
