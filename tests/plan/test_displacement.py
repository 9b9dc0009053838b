"""Nodes that a gang has its places on, and that are not there for it any more."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tarragon.base.time_arithmetic import MAX_TIME
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.job.model import Replica, TrainingJob
from tarragon.job.restart_encoding import decode_restarts, encode_restarts
from tarragon.job.status import Admission, JobStatus, RestartRecord
from tarragon.kube.codec import decode, encode, format_time
from tarragon.kube.core import Node, Pod
from tarragon.kube.meta import Key
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.lifecycle.displacement import (
    AdmittedGang,
    NodeFilter,
    avoided_nodes,
    displaced_replicas,
    next_displacement_at,
    replicas_on_rejecting_nodes,
)
from tarragon.plan.lifecycle.restart_records import backoff_ends_at
from tarragon.plan.lifecycle.start_timeout import MAX_MOVES, record_move
from tests.plan.world import START, World, manifest

FIRST, SECOND = Replica(WORKER, 0), Replica(WORKER, 1)
REFUSED = RestartRecord(rejections=1, reason="OutOfcpu", ended_at=START, rejected_by_node="a")


def node(name: str, *, ready: str = "True", since: dt.datetime = START, **spec: Any) -> tuple[Key, Node]:
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": format_time(since)}]
    body = {"metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions}}
    return Key("", name), decode(encode(body), Node)


def living(on: str) -> Pod:
    return decode(encode({"spec": {"nodeName": on}, "status": {"phase": "Running"}}), Pod)


def job(**spec: Any) -> TrainingJob:
    body = manifest({"Worker": 2})
    body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"] |= spec
    found = decode_and_validate(FRAMEWORKS[0], body).job
    assert found is not None
    return found


def house(*nodes: tuple[Key, Node], pods: Any = None, status: JobStatus | None = None, **spec: Any) -> AdmittedGang:
    """Worker 0 has its place on `a`, worker 1 on `b`; both run if nothing else is said."""
    return AdmittedGang(
        job=job(**spec),
        status=status or JobStatus(),
        admission=Admission(queued_at=START, admitted_at=START, size={WORKER: 2}, nodes={FIRST: "a", SECOND: "b"}),
        pods={FIRST: living("a"), SECOND: living("b")} if pods is None else pods,
        nodes=dict(nodes),
    )


def after(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def test_whoever_runs_stays_where_it_is_cordoned_or_tainted_or_not() -> None:
    taints = [{"key": "k", "effect": "NoSchedule"}]

    assert not displaced_replicas(house(node("a", unschedulable=True), node("b", taints=taints)), START)


def test_whoever_has_no_pod_needs_a_node_that_would_take_it() -> None:
    assert displaced_replicas(house(node("a", unschedulable=True), node("b"), pods={}), START) == {FIRST}


def test_whoever_has_finished_needs_none() -> None:
    status = JobStatus(succeeded_replicas=frozenset({FIRST}))

    assert not displaced_replicas(house(node("b"), pods={}, status=status), START)


def test_a_node_that_is_gone_takes_its_replicas_along() -> None:
    assert displaced_replicas(house(node("b")), START) == {FIRST}


@pytest.mark.parametrize(("seconds", "given_up"), [(359, frozenset()), (360, {FIRST})])
def test_a_node_that_is_not_ready_is_waited_for_a_minute_longer_than_kubernetes_does(
    seconds: float, given_up: frozenset[Replica]
) -> None:
    found = house(node("a", ready="Unknown"), node("b"))

    assert displaced_replicas(found, after(seconds)) == given_up
    assert next_displacement_at(found, after(1)) == after(360)


def test_pods_that_say_themselves_how_long_they_stay_are_taken_at_their_word() -> None:
    kept = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    nodes = node("a", ready="Unknown"), node("b")

    assert next_displacement_at(house(*nodes, tolerations=[{**kept, "tolerationSeconds": 3600}]), START) == after(3660)
    assert next_displacement_at(house(*nodes, tolerations=[kept]), START) is None
    assert not displaced_replicas(house(*nodes, tolerations=[kept]), after(10**6))


def test_pods_that_stay_longer_than_the_calendar_goes_stay_for_good() -> None:
    kept = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    found = house(node("a", ready="Unknown"), node("b"), tolerations=[{**kept, "tolerationSeconds": 2**63 - 1}])

    assert not displaced_replicas(found, after(10**6))
    assert next_displacement_at(found, START) == MAX_TIME


def test_a_node_that_has_sent_a_pod_back_is_left_and_shunned_for_five_minutes() -> None:
    status = JobStatus(restarts={FIRST: REFUSED})

    assert displaced_replicas(house(node("a"), node("b"), pods={}, status=status), START) == {FIRST}
    assert avoided_nodes(status, after(299)) == {"a"}
    assert not avoided_nodes(status, after(300))


def test_what_a_node_refused_before_the_gang_was_admitted_says_nothing_of_now() -> None:
    before = RestartRecord(rejections=1, reason="OutOfcpu", ended_at=after(-1), rejected_by_node="a")

    assert not displaced_replicas(
        house(node("a"), node("b"), pods={}, status=JobStatus(restarts={FIRST: before})), START
    )


def test_the_scheduler_has_a_second_to_find_another_node_though_records_have_no_fractions_of_seconds() -> None:
    status = JobStatus(restarts={FIRST: replace(REFUSED, ended_at=after(0.99))})
    record = decode_restarts(encode_restarts(status.restarts, 1))[FIRST]
    again = backoff_ends_at(record)

    assert again is not None
    assert again >= after(1.99)


def test_closed_nodes_say_why() -> None:
    nodes = dict([node("b", ready="False"), node("c", taints=[{"key": "k", "effect": "NoExecute"}])])
    nodes |= dict([node("d")])
    places = {FIRST: "a", SECOND: "b", Replica(WORKER, 2): "c", Replica(WORKER, 3): "", Replica(WORKER, 4): "d"}

    assert list(
        replicas_on_rejecting_nodes(NodeFilter(job(), nodes, lambda name: name == "d", lambda _, __, ___: ""), places)
    ) == [
        (FIRST, "node a no longer exists"),
        (SECOND, "node b is not ready"),
        (Replica(WORKER, 2), "node c: its taint k is not tolerated"),
        (Replica(WORKER, 4), "kube-scheduler preempts pods on node d for a more urgent pod"),
    ]


def test_replicas_of_an_edited_template_need_a_place_with_their_part_of_a_gpu() -> None:
    def told(annotations: Mapping[str, str], *places: str) -> list[str]:
        body = manifest({"Worker": 2})
        body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["metadata"] = {"annotations": annotations}
        edited = decode_and_validate(FRAMEWORKS[0], body).job
        assert edited is not None
        used = {"a/1": "vGPU 1 of node a has 0.4 left, and 0.5 is needed"}
        node_filter = NodeFilter(edited, dict([node("a")]), lambda _: False, lambda _, place, __: used.get(place, ""))
        assigned = {Replica(WORKER, index): place for index, place in enumerate(places)}
        return [reason for _, reason in replicas_on_rejecting_nodes(node_filter, assigned)]

    assert told({}, "a", "a/0") == ["it was assigned to vGPU 0 of node a, but requests no part of a GPU any more"]
    half = {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1"}
    assert told(half, "a", "a/0", "a/1") == [
        "it was assigned to node a, but requests a part of a GPU now",
        "vGPU 1 of node a has 0.4 left, and 0.5 is needed",
    ]


def test_a_gang_that_is_sent_from_node_to_node_goes_back_to_the_queue() -> None:
    admission = Admission(queued_at=START, admitted_at=START, size={WORKER: 1}, nodes={FIRST: "a"})
    for number in range(MAX_MOVES):
        admission = record_move(admission, _on(admission, "b"), {FIRST: REFUSED}, after(number))
        assert admission.admitted_at is not None
        admission = _on(admission, "a")
    given = record_move(admission, _on(admission, "b"), {FIRST: REFUSED}, after(60))

    assert given.admitted_at is None
    assert given.wait is not None
    assert (given.wait.code, given.wait.message) == (
        "MovedTooOften",
        "node a rejected worker-0 (OutOfcpu); the gang was already moved 5 times",
    )
    assert given.backoff is not None
    later = record_move(admission, _on(admission, "b"), {FIRST: REFUSED}, after(3600))
    assert later.reassigned_at == (after(3600),)


def test_who_leaves_a_node_that_refused_it_long_ago_is_not_sent_from_node_to_node() -> None:
    admission = Admission(queued_at=START, admitted_at=after(600), size={WORKER: 1}, nodes={FIRST: "a"})

    assert record_move(admission, _on(admission, "b"), {FIRST: REFUSED}, after(900)) == _on(admission, "b")


def test_whose_node_is_lost_moves_as_often_as_it_takes() -> None:
    admission = Admission(queued_at=START, admitted_at=START, size={WORKER: 1}, nodes={FIRST: "a"})

    assert record_move(admission, _on(admission, "b"), {}, START) == _on(admission, "b")


def _on(admission: Admission, name: str) -> Admission:
    return Admission(
        queued_at=admission.queued_at,
        admitted_at=admission.admitted_at,
        size=admission.size,
        nodes={FIRST: name},
        reassigned_at=admission.reassigned_at,
    )


def test_a_pod_that_its_lost_node_does_not_end_is_deleted_without_it() -> None:
    world = World(manifest({"Worker": 2}))
    world.nodes = dict([node("node-a"), node("node-b")])
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    world.delete_pod("dist-worker-1")
    world.pass_time(90)
    assert not [one for one in world.decide().deletes if one.force]

    world.nodes = dict([node("node-a"), node("node-b", ready="Unknown")])
    assert [(one.key.name, one.force) for one in world.decide().deletes] == [("dist-worker-1", True)]
    world.now -= dt.timedelta(seconds=1)
    assert not world.decide().deletes


def test_a_node_that_is_not_ready_for_a_moment_may_still_end_its_pods() -> None:
    world = World(manifest({"Worker": 2}))
    world.nodes = dict([node("node-a"), node("node-b")])
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    world.delete_pod("dist-worker-1")
    world.pass_time(120)
    silent = world.now
    world.nodes = dict([node("node-a"), node("node-b", ready="Unknown", since=silent)])
    step = world.decide()

    assert not step.deletes
    assert step.requeue_at == silent + dt.timedelta(seconds=60)
    world.pass_time(60)
    assert [one.key.name for one in world.decide().deletes] == ["dist-worker-1"]
