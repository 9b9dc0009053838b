"""Jobs that run although no admission says so: another operator began them, or their record was lost."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.base.resources import PODS
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import ADOPT_ANNOTATION, Replica, ReplicaType
from tarragon.job.status import UNASSIGNED, Admission
from tarragon.kube.codec import decode, encode, format_time
from tarragon.kube.core import Pod
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.plan.reconcile.adoption import (
    LivePods,
    find_live_pods,
    has_unassigned_replicas,
    rebuild_admission,
    with_bound_nodes,
)
from tarragon.plan.view.actions import Actions
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot
from tarragon.scheduling.policies.fifo import fifo
from tests.plan.world import START, World, manifest
from tests.scheduling.scenes import afresh

PLACES = {"dist-ps-0": "node-a", "dist-worker-0": "node-b", "dist-worker-1": "node-b"}
THEIRS = {
    "training.kubeflow.org/operator-name": "tfjob-controller",
    "training.kubeflow.org/job-name": "dist",
}


def foreign(replicas: Mapping[str, int] | None = None, settings: OperatorSettings | None = None, **spec: Any) -> World:
    """As training-operator has it: conditions of its own, a pod and a service of each replica, no word of ours."""
    world = World(manifest(replicas or {"PS": 1, "Worker": 2}, **spec), settings)
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "dist", "uid": "job-1", "controller": True}
    for name, node in PLACES.items():
        metadata = {"name": name, "namespace": "n1", "labels": THEIRS, "ownerReferences": [owner], "uid": f"u-{name}",
                    "resourceVersion": "1", "creationTimestamp": format_time(START)}  # fmt: skip
        container = {"name": "tensorflow", "image": "train"}
        spec_of_pod = {"containers": [container], "nodeName": node, "restartPolicy": "Never"}
        world.pods[name] = {"metadata": metadata, "spec": spec_of_pod, "status": {"phase": "Running"}}
        world.services[name] = {"metadata": metadata, "spec": {"clusterIP": "None"}}
    times = {"lastUpdateTime": "2026-11-20T08:00:00Z", "lastTransitionTime": "2026-11-20T08:00:00Z"}
    conditions = [
        {"type": "Created", "status": "True", "reason": "TFJobCreated", "message": "TFJob dist is created.", **times},
        {
            "type": "Running",
            "status": "True",
            "reason": "TFJobRunning",
            "message": "TFJob n1/dist is running.",
            **times,
        },
    ]
    world.patch_job({"status": {"conditions": conditions, "startTime": "2026-11-20T08:00:00Z"}})
    return world


def ask(world: World) -> None:
    world.patch_job({"metadata": {"annotations": {ADOPT_ANNOTATION: "true"}}})


def found(world: World) -> LivePods:
    """As the scheduler sees it."""
    taken = decode_and_validate(world.framework, world.job)
    assert taken.job is not None
    assert taken.dialect is not None
    pods = [decode(encode(pod), Pod) for pod in world.pods.values()]
    return find_live_pods(taken.dialect, taken.job, world.status, pods)


def rebuild(world: World) -> Admission:
    """What the scheduler writes about such a job."""
    taken = decode_and_validate(world.framework, world.job)
    assert taken.job is not None
    admission = rebuild_admission(found(world), taken.job.requested_size(), taken.job.requested_size(), world.now)
    assert admission is not None
    world.write_admission(admission)
    return admission


def uids(world: World) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in world.pods.items()}


def test_a_job_that_another_operator_began_is_left_alone_until_somebody_asks_though_nobody_else_is_at_work() -> None:
    world = foreign()
    step = world.decide()

    (event,) = step.events
    assert step == Actions(events=[event])
    assert event.message == (
        'left to the operator that started it; set the annotation tarragon.dev/adopt: "true" to hand it over'
    )


@pytest.mark.parametrize("what", ["status", "pods"])
def test_either_a_status_or_pods_show_that_somebody_has_begun_it(what: str) -> None:
    world = foreign()
    if what == "status":
        world.pods, world.services = {}, {}
    else:
        world.patch_job({"status": {"conditions": None, "startTime": None}})

    assert world.decide().metadata_patch is None
    world.settings = OperatorSettings(adopts_jobs=True)
    assert world.decide().metadata_patch is not None


def test_a_job_that_is_over_and_was_never_ours_is_passed_over_in_silence() -> None:
    world = foreign()
    succeeded = {"type": "Succeeded", "status": "True", "reason": "TFJobSucceeded", "message": ""}
    world.patch_job({"status": {"conditions": [succeeded]}})

    assert not world.decide().events


@pytest.mark.parametrize("empty", [{}, {"conditions": None, "replicaStatuses": None}])
def test_the_empty_status_that_client_libraries_write_is_no_beginning(empty: dict[str, Any]) -> None:
    world = World({**manifest({"Worker": 1}), "status": empty})

    assert world.decide().status_patch is not None


def test_a_job_that_is_taken_over_keeps_its_pods_services_conditions_and_times() -> None:
    world = foreign()
    pods, services = uids(world), dict(world.services)
    ask(world)
    world.settle()
    assert uids(world) == pods, "nothing happens before its places are on record"

    rebuild(world)
    world.settle()

    assert (uids(world), world.services, world.created) == (pods, services, Counter())
    assert (world.tarragon["generation"], world.tarragon["state"], world.tarragon["ready"]) == (
        "kubeflow.org/v1",
        "Running",
        "3/3",
    )
    assert world.job["status"]["startTime"] == "2026-11-20T08:00:00Z"
    running = world.status.condition("Running")
    assert running is not None
    assert running.last_transition_time == dt.datetime(2026, 11, 20, 8, tzinfo=dt.UTC)
    assert world.tarragon["admission"]["nodes"] == {"PS": {"node-a": "0"}, "Worker": {"node-b": "0-1"}}


def test_it_comes_to_its_end_with_us() -> None:
    world = foreign()
    ask(world)
    world.settle()
    rebuild(world)
    world.settle()
    world.exit("dist-worker-0", 0)
    world.settle()

    assert world.tarragon["state"] == "Succeeded"
    assert not world.created


def test_an_end_that_came_before_we_did_counts_without_any_places() -> None:
    world = foreign()
    world.exit("dist-worker-0", 0)
    ask(world)
    world.settle()

    assert world.tarragon["state"] == "Succeeded"


def test_a_replacement_is_found_by_the_service_that_it_was_left_with_and_told_what_the_others_were() -> None:
    """Whichever generation of labels their operator selected by."""
    world = foreign(cleanPodPolicy="None", policy="OnFailure")
    ask(world)
    world.settle()
    rebuild(world)
    world.settle()
    world.disrupt("dist-worker-1")
    world.settle()

    assert world.created == Counter(["dist-worker-1"])
    labels = world.pods["dist-worker-1"]["metadata"]["labels"]
    assert THEIRS.items() <= labels.items()
    assert labels["job-name"] == labels["tf-job-name"] == labels["tf_job_name"] == "dist"
    (environment,) = [each["value"] for each in world.pods["dist-worker-1"]["spec"]["containers"][0]["env"]]
    assert (
        '"ps":["dist-ps-0.n1.svc:2222"],"worker":["dist-worker-0.n1.svc:2222","dist-worker-1.n1.svc:2222"]'
        in environment
    )


def test_a_gang_of_which_a_part_lives_keeps_that_and_gets_places_for_the_rest() -> None:
    world = foreign()
    world.vanish("dist-worker-1")
    ask(world)
    world.settle()
    admission = rebuild(world)
    assert admission.nodes == {Replica(PS, 0): "node-a", Replica(WORKER, 0): "node-b", Replica(WORKER, 1): UNASSIGNED}
    world.settle()
    assert not world.created
    admitted = world.status.condition("Admitted")
    assert admitted is not None
    assert admitted.message == "2 of 3 replicas are scheduled"

    world.write_admission(Admission(queued_at=world.now, admitted_at=world.now, size=admission.size,
                                    nodes={**admission.nodes, Replica(WORKER, 1): "node-a"}))  # fmt: skip
    world.settle()
    assert world.created == Counter(["dist-worker-1"])
    assert world.pods["dist-worker-1"]["spec"]["nodeName"] == "node-a"


def test_a_pod_that_kube_scheduler_has_yet_to_bind_is_waited_for_and_stays_where_that_puts_it() -> None:
    world = foreign()
    del world.pods["dist-worker-1"]["spec"]["nodeName"]
    world.pods["dist-worker-1"]["status"] = {"phase": "Pending"}
    before = uids(world)
    ask(world)
    world.settle()
    admission = rebuild(world)
    assert found(world).unbound == {Replica(WORKER, 1)}
    world.settle()
    assert uids(world) == before

    world.pods["dist-worker-1"]["spec"]["nodeName"] = "node-c"
    world.write_admission(with_bound_nodes(admission, found(world)))
    world.run()
    world.settle()
    assert uids(world) == before
    assert world.tarragon["admission"]["nodes"]["Worker"] == {"node-b": "0", "node-c": "1"}


def test_a_record_that_was_lost_comes_back_from_what_lives() -> None:
    world = World(manifest({"PS": 1, "Worker": 2}))
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    before, places = uids(world), world.tarragon["admission"]["nodes"]

    world.patch_job({"status": {"tarragon": None}})
    world.settle()
    assert uids(world) == before
    rebuild(world)
    world.settle()

    assert (uids(world), world.tarragon["admission"]["nodes"]) == (before, places)
    assert set(world.created.values()) == {1}
    assert world.tarragon["state"] == "Running"


def test_pods_whose_names_end_in_what_the_operator_of_2018_drew_at_random_are_kept() -> None:
    spec = {"containers": [{"name": "tensorflow", "image": "train"}]}
    world = World(
        {
            **manifest({}),
            "apiVersion": "kubeflow.org/v1alpha1",
            "spec": {"RuntimeId": "ab12", "replicaSpecs": [{"replicas": 1, "template": {"spec": spec}}]},
        }
    )
    owner = {"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJob", "name": "dist", "uid": "job-1", "controller": True}
    name = "dist-master-ab12-0-x9y8z"
    metadata = {"name": name, "namespace": "n1", "ownerReferences": [owner], "uid": "u-1", "resourceVersion": "1",
                "creationTimestamp": format_time(START)}  # fmt: skip
    world.pods[name] = {"metadata": metadata, "spec": {**spec, "nodeName": "node-a"}, "status": {"phase": "Running"}}
    world.patch_job({"status": {"phase": "Running", "state": "Running", "replicaStatuses": []}})
    assert world.decide().metadata_patch is None

    ask(world)
    world.settle()
    rebuild(world)
    world.settle()

    assert uids(world) == {name: "u-1"}
    assert not world.created
    assert (world.tarragon["state"], world.job["status"]["phase"]) == ("Running", "Running")


def test_what_was_there_before_a_suspension_is_not_taken_for_what_is_to_run() -> None:
    world = World(manifest({"PS": 1, "Worker": 2}))
    world.settle()
    world.admit()
    world.settle()
    left = dict(world.pods)
    world.pass_time(10)
    world.edit({"runPolicy": {"suspend": True}})
    world.settle()
    world.edit({"runPolicy": {"suspend": None}})
    world.settle()
    world.pods = left

    assert not found(world).live_nodes
    world.settle()
    assert not world.pods


# ---------------------------------------------------------------------------------------------------------- properties

NODES = ("a", "b", "c")
kinds = st.sampled_from([PS, WORKER])
replicas = st.builds(Replica, kinds, st.integers(0, 5))


@st.composite
def gangs(draw: st.DrawFn) -> tuple[LivePods, dict[ReplicaType, int], dict[ReplicaType, int]]:
    """What there is of one, with its least and its wish."""
    wish = {PS: draw(st.integers(0, 3)), WORKER: draw(st.integers(1, 6))}
    elastic = draw(st.booleans())
    least = {**wish, WORKER: draw(st.integers(1, wish[WORKER]))} if elastic else wish
    living = draw(st.dictionaries(replicas, st.sampled_from([*NODES, UNASSIGNED])))
    done = draw(st.dictionaries(replicas, st.sampled_from(NODES)))
    return (
        LivePods(live_nodes=living, succeeded_nodes={one: node for one, node in done.items() if one not in living}),
        least,
        wish,
    )


@given(gangs())
def test_who_lives_stays_and_who_is_missing_has_no_place(
    gang: tuple[LivePods, dict[ReplicaType, int], dict[ReplicaType, int]],
) -> None:
    remains_, least, wish = gang
    admission = rebuild_admission(remains_, least, wish, START)

    if not remains_.live_nodes:
        assert admission is None
        return
    assert admission is not None
    assert all(least[kind] <= number <= wish[kind] for kind, number in admission.size.items())
    assert Counter(replica.type for replica in admission.nodes) == Counter(admission.size)
    for replica, node in admission.nodes.items():
        assert replica.index < admission.size[replica.type]
        assert node == {**remains_.succeeded_nodes, **remains_.live_nodes}.get(replica, UNASSIGNED)
    kept = {replica for replica in remains_.live_nodes if replica.index < wish[replica.type]}
    assert kept <= admission.nodes.keys(), "nobody goes who is wished for"
    assert with_bound_nodes(admission, remains_) == admission
    assert has_unassigned_replicas(admission) == (UNASSIGNED in admission.nodes.values())


def demand(kind: ReplicaType, minimum: int, wish: int) -> Demand:
    return Demand(type=kind, resources={PODS: 1000}, minimum=minimum, requested=wish, eligible_nodes=frozenset(NODES))


@given(gangs(), st.lists(st.integers(0, 6), min_size=3, max_size=3))
def test_the_rest_of_a_gang_gets_places_that_are_free_or_none(
    gang: tuple[LivePods, dict[ReplicaType, int], dict[ReplicaType, int]], room: list[int]
) -> None:
    """With the policy that places it: whatever lives on a node, nothing is promised there beyond what is free."""
    remains_, least, wish = gang
    admission = rebuild_admission(remains_, least, wish, START)
    if admission is None:
        return
    free = dict(zip(NODES, room, strict=True))
    snapshot = Snapshot(
        now=START,
        nodes=[NodeState(name=name, capacity={PODS: 100_000}, free={PODS: 1000 * free[name]}) for name in NODES],
        running=[
            RunningGang(
                name="dist",
                demands=[
                    Demand(
                        type=kind,
                        is_anchor=kind == PS,
                        resources={PODS: 1000},
                        minimum=least[kind],
                        requested=wish[kind],
                        eligible_nodes=frozenset(NODES),
                    )
                    for kind in (PS, WORKER)
                ],
                nodes=admission.nodes,
                is_elastic=least != wish,
                displaced=frozenset(one for one, node in admission.nodes.items() if node == UNASSIGNED)
                - remains_.unbound,
            )
        ],
    )

    after = {one: node for decision in afresh(fifo)(snapshot) for one, node in getattr(decision, "nodes", {}).items()}

    for replica, node in admission.nodes.items():
        assert node in {UNASSIGNED, after.get(replica, node)}, "nobody moves who has a place"
    added = Counter(node for one, node in after.items() if node != UNASSIGNED and admission.nodes.get(one) != node)
    assert all(number <= free[node] for node, number in added.items())
    assert not remains_.unbound & {one for one, node in after.items() if node != UNASSIGNED}
