"""What a job says of pods that are there and do not get to run, and which of it costs the gang its places."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tarragon.job.status import Obstacle
from tarragon.kube.codec import decode, encode, format_time
from tarragon.kube.core import Node, Pod
from tarragon.kube.meta import Key
from tarragon.operator.informers.cache_transforms import CachedPod
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.plan.status.creation_failures import timeout_for
from tarragon.plan.view.stalls import find_stall, is_unable_to_start
from tests.plan.kubelets import MISSING, reports, shown_reason, started, unready, waits
from tests.plan.world import START, World, manifest


def test_a_replica_on_a_lost_node_is_not_counted_as_running() -> None:
    world = started(Worker=2)
    world.run()
    world.settle()
    lost = {"type": "Ready", "status": "Unknown", "lastTransitionTime": format_time(world.now)}
    name = world.pods["dist-worker-1"]["spec"]["nodeName"]
    node = {"metadata": {"name": name}, "status": {"conditions": [lost]}}
    world.nodes = {Key("", name): decode(encode(node), Node)}
    world.settle()
    before = world.tarragon["ready"]
    world.pass_time(61)
    world.settle()

    since = format_time(START)
    assert (before, world.tarragon["ready"]) == ("2/2", "1/2")
    assert world.conditions()["Stalled"] == "NodeNotReady"
    assert shown_reason(world) == (
        "NodeNotReady",
        f"worker-1: node {name} has not been ready since {since}; it is not known whether the pod runs",
    )


def test_a_node_that_is_not_ready_does_not_hide_what_keeps_its_pod_from_starting() -> None:
    world = started(Worker=1)
    waits(world, 0, "ErrImagePull", MISSING)
    world.settle()
    before = world.status.obstacle
    lost = {"type": "Ready", "status": "Unknown", "lastTransitionTime": format_time(world.now)}
    name = world.pods["dist-worker-0"]["spec"]["nodeName"]
    node = {"metadata": {"name": name}, "status": {"conditions": [lost]}}
    world.nodes = {Key("", name): decode(encode(node), Node)}
    for _ in range(2):
        world.pass_time(31)
        world.settle()

        assert world.status.obstacle == before
        assert shown_reason(world) == ("ImagePullBackOff", f"worker-0: {MISSING}")


# -------------------------------------------------------------------------------------------- what can't start at all


def test_replicas_that_wait_for_the_same_image_are_told_as_one() -> None:
    world = started()
    for index in (0, 2, 3):
        waits(world, index, "ErrImagePull", MISSING)
    world.settle()

    assert shown_reason(world) == ("ImagePullBackOff", f"3 of 4 workers: {MISSING}")
    assert world.status.obstacle == Obstacle(
        since=START, reason="ImagePullBackOff", message=f"3 of 4 workers: {MISSING}"
    )
    assert world.conditions()["Blocked"] == "ImagePullBackOff"


def test_between_two_tries_of_the_kubelet_the_words_of_the_last_one_stay() -> None:
    world = started(Worker=2)
    for _ in range(3):
        waits(world, 1, "ErrImagePull", MISSING)
        world.settle()
        waits(world, 1, "ImagePullBackOff", 'Back-off pulling image "train:2"')
        world.settle()

    assert shown_reason(world) == ("ImagePullBackOff", f"worker-1: {MISSING}")
    assert [event.reason for event in world.events].count("ImagePullBackOff") == 1


def test_the_words_of_the_last_try_stay_though_other_troubles_come_and_go() -> None:
    world = started(Worker=4)
    for index in (1, 2):
        waits(world, index, "ErrImagePull", f"{MISSING}; also denied: ask")
    waits(world, 0, "CreateContainerConfigError", 'configmap "settings" not found')
    world.settle()
    for index in (1, 2):
        waits(world, index, "ImagePullBackOff", 'Back-off pulling image "train:2"')
    world.settle()

    words = f"2 of 4 workers: {MISSING}; also denied: ask; also worker-0: CreateContainerConfigError"
    assert shown_reason(world) == ("ImagePullBackOff", words)


def test_the_words_of_the_last_try_are_forgotten_once_the_image_is_there() -> None:
    world = started(Worker=1)
    waits(world, 0, "ErrImagePull", MISSING)
    world.settle()
    assert world.tarragon["imagePullErrors"] == {"Worker": MISSING}
    waits(world, 0, "ContainerCreating")
    world.settle()
    assert "imagePullErrors" not in world.tarragon
    waits(world, 0, "ImagePullBackOff", 'Back-off pulling image "train:2"')
    world.settle()

    assert shown_reason(world) == ("ImagePullBackOff", 'worker-0: Back-off pulling image "train:2"')


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("InvalidImageName", 'Failed to apply default image tag "Train::2": invalid reference format'),
        ("ErrImageNeverPull", 'Container image "train:2" is not present with pull policy of Never'),
        ("CreateContainerConfigError", 'configmap "settings" not found'),
        ("CreateContainerConfigError", 'secret "key" not found'),
        ("RunContainerError", "failed to create shim task"),
    ],
)
def test_what_a_kubelet_can_not_start_stops_the_gang_in_its_words(reason: str, message: str) -> None:
    world = started(Worker=1)
    waits(world, 0, reason, message)
    world.settle()

    assert shown_reason(world) == (reason, f"worker-0: {message}")
    assert world.status.obstacle is not None


def test_different_troubles_are_told_together_the_most_frequent_first() -> None:
    world = started(Worker=4)
    waits(world, 0, "CreateContainerConfigError", 'configmap "settings" not found')
    for index in (1, 2):
        waits(world, index, "ErrImagePull", MISSING)
    world.settle()

    assert shown_reason(world) == (
        "ImagePullBackOff",
        f"2 of 4 workers: {MISSING}; also worker-0: CreateContainerConfigError",
    )


def test_an_init_container_that_can_not_start_is_named() -> None:
    world = started(Worker=1)
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}
    container = {"name": "tensorflow", "state": {"waiting": {"reason": "PodInitializing"}}}
    reports(
        world, 0, {"initContainerStatuses": [{"name": "fetch", "state": waiting}], "containerStatuses": [container]}
    )
    world.settle()

    assert shown_reason(world) == ("ImagePullBackOff", "worker-0: init container fetch: no such host")


def test_a_volume_that_takes_its_node_long_is_told_after_a_minute_with_where_to_look_and_costs_nothing() -> None:
    world = started(Worker=1)
    waits(world, 0, "ContainerCreating")
    world.pods["dist-worker-0"]["status"]["conditions"] = [unready("PodReadyToStartContainers")]
    step = world.settle()
    assert shown_reason(world) == ("", "")
    assert step.requeue_at == START + dt.timedelta(seconds=60)

    world.pass_time(60)
    world.settle()
    assert shown_reason(world) == (
        "PodNotPrepared",
        (
            "worker-0: node node-a has not prepared the pod's volumes and network; "
            "see kubectl -n n1 describe pod dist-worker-0"
        ),
    )
    assert world.conditions()["Stalled"] == "PodNotPrepared"
    assert "Blocked" not in world.conditions()

    world.pass_time(3600)  # A check of a large disk, or new owners for all of its files.
    world.settle()
    assert world.status.obstacle is None
    assert world.status.is_admitted
    assert "dist-worker-0" in world.pods


def test_a_process_node_says_itself_which_volume_it_lacks() -> None:
    world = started(Worker=1)
    waits(world, 0, "ContainerCreating", 'MountVolume.SetUp failed for volume "d" : secret "s" not found')
    world.settle()

    assert shown_reason(world)[0] == "PodNotPrepared"
    assert shown_reason(world)[1].endswith('secret "s" not found')
    assert world.status.obstacle is not None


def test_once_it_runs_nothing_is_left_of_it() -> None:
    world = started(Worker=1)
    waits(world, 0, "ErrImagePull", MISSING)
    world.settle()
    world.run("dist-worker-0")
    world.settle()

    assert shown_reason(world) == ("", "")
    assert world.status.obstacle is None
    assert "Blocked" not in world.conditions()


def test_a_gang_has_five_minutes_to_start_and_one_to_be_made() -> None:
    settings = OperatorSettings()

    assert timeout_for(Obstacle(since=START, reason="ImagePullBackOff", message=""), settings) == 300
    assert timeout_for(Obstacle(since=START, reason="Refused", message=""), settings) == 60


# --------------------------------------------------------------------------------------------- what only takes its time


def test_the_slow_pull_of_an_image_costs_nothing_and_is_told_after_five_minutes() -> None:
    world = started(Worker=2)
    for index in (0, 1):
        waits(world, index, "ContainerCreating")
    step = world.settle()
    assert step.requeue_at == START + dt.timedelta(minutes=5)

    world.pass_time(300)
    world.settle()
    assert world.status.obstacle is None
    assert world.conditions()["Stalled"] == "ContainerCreating"
    assert shown_reason(world) == (
        "ContainerCreating",
        (
            "all 2 workers: node node-a is still pulling the image or mounting volumes; "
            "see kubectl -n n1 describe pod dist-worker-0"
        ),
    )


def test_a_program_that_ends_again_and_again_is_told_with_its_last_words_and_keeps_its_places() -> None:
    world = started("OnFailure", Worker=1)
    last = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "step 3\nstep 4\n"}}
    waits(world, 0, "CrashLoopBackOff", "back-off 40s restarting failed container", lastState=last, restartCount=4)
    world.settle()

    assert shown_reason(world) == ("CrashLoopBackOff", "worker-0: exit code 137 (OOMKilled), after 4 restarts: step 4")
    assert world.status.obstacle is None


def test_an_init_container_that_runs_for_long_is_told() -> None:
    world = started(Worker=1)
    init = {"name": "fetch", "ready": False, "state": {"running": {"startedAt": format_time(START)}}}
    main = {"name": "tensorflow", "state": {"waiting": {"reason": "PodInitializing"}}}
    reports(
        world,
        0,
        {"conditions": [unready("Initialized")], "initContainerStatuses": [init], "containerStatuses": [main]},
    )
    world.settle()
    world.pass_time(300)
    world.settle()

    assert shown_reason(world) == (
        "PodInitializing",
        "worker-0: init container fetch has run since 2026-11-21T10:00:00Z",
    )
    assert world.status.obstacle is None


def test_a_replica_that_runs_and_is_not_ready_for_long_is_told_and_left_alone() -> None:
    world = started(Worker=1)
    running = {"name": "tensorflow", "ready": False, "state": {"running": {"startedAt": format_time(START)}}}
    ready = unready("Ready", reason="ContainersNotReady", message="containers with unready status: [tensorflow]")
    reports(world, 0, {"phase": "Running", "conditions": [ready], "containerStatuses": [running]})
    world.settle()
    world.pass_time(300)
    world.settle()

    assert shown_reason(world) == (
        "NotReady",
        (
            "worker-0: the pod runs but has not been ready since 2026-11-21T10:00:00Z: "
            "containers with unready status: [tensorflow]"
        ),
    )
    assert world.status.obstacle is None
    assert world.tarragon["state"] == "Running"


def test_a_sidecar_without_its_image_is_told_and_stops_nobody_who_trains() -> None:
    world = started(Worker=1)
    running = {"name": "tensorflow", "ready": True, "state": {"running": {"startedAt": format_time(START)}}}
    proxy = {"name": "proxy", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}}
    reports(world, 0, {"phase": "Running", "containerStatuses": [running, proxy]})
    world.settle()

    assert shown_reason(world) == ("CrashLoopBackOff", "worker-0: container proxy: back-off")
    assert world.status.obstacle is None


def test_scheduling_gates_are_told_as_they_are() -> None:
    world = started(Worker=1)
    del world.pods["dist-worker-0"]["spec"]["nodeName"]
    gated = unready("PodScheduled", reason="SchedulingGated", message="Scheduling is blocked due to non-empty gates")
    reports(world, 0, {"conditions": [gated]})
    world.settle()

    assert shown_reason(world) == ("SchedulingGated", "worker-0: Scheduling is blocked due to non-empty gates")
    assert world.status.obstacle is None


def test_a_pod_of_another_scheduler_that_is_not_there_is_told() -> None:
    job = manifest({"Worker": 1})
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"] = "volcano"
    world = World(job)
    world.settle()
    world.pass_time(300)
    world.settle()

    assert shown_reason(world) == ("NotScheduled", "worker-0: no scheduler has considered the pod; is volcano running?")


def test_a_pod_that_does_not_go_keeps_its_successor_from_coming_and_is_told() -> None:
    world = started(Worker=1)
    world.run()
    world.delete_pod("dist-worker-0")
    for _ in range(3):
        world.step()
    world.pass_time(90)
    world.step()

    assert shown_reason(world) == (
        "PodNotGone",
        (
            "worker-0: the earlier pod dist-worker-0 on node node-a should have been deleted by 2026-11-21T10:00:30Z; "
            "its node may be lost"
        ),
    )


# -------------------------------------------------------------------------------------------------------- single pods


def pod(status: dict[str, Any], **spec: Any) -> Pod:
    metadata = {"name": "p", "namespace": "n", "creationTimestamp": format_time(START)}
    spec = {"nodeName": "n-1", "containers": [{"name": "tensorflow"}], **spec}
    return decode(encode({"metadata": metadata, "spec": spec, "status": status}), CachedPod)


def test_a_kubelet_that_says_nothing_is_told_and_is_no_hindrance() -> None:
    found = find_stall(pod({"phase": "Pending"}), "tensorflow")

    assert found is not None
    assert (found.reason, found.report_at) == ("PodNotTaken", START + dt.timedelta(minutes=5))
    assert not is_unable_to_start(pod({"phase": "Pending"}), "tensorflow", START + dt.timedelta(days=1))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_nothing_stops_what_has_ended(phase: str) -> None:
    assert find_stall(pod({"phase": phase}), "tensorflow") is None


SIDECAR = {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]}
NO_IMAGE = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}


def test_a_sidecar_that_can_not_start_again_stops_nobody_who_trains() -> None:
    main = {"name": "tensorflow", "ready": True, "state": {"running": {"startedAt": format_time(START)}}}
    inits = [{"name": "proxy", "state": NO_IMAGE}]
    found = find_stall(
        pod({"phase": "Running", "containerStatuses": [main], "initContainerStatuses": inits}, **SIDECAR), "tensorflow"
    )

    assert found is not None
    assert (found.message, found.prevents_start) == ("container proxy: not found", False)


def test_a_sidecar_that_can_not_start_first_keeps_the_training_from_starting() -> None:
    main = {"name": "tensorflow", "state": {"waiting": {"reason": "PodInitializing"}}}
    inits = [{"name": "proxy", "state": NO_IMAGE}]
    found = find_stall(pod({"containerStatuses": [main], "initContainerStatuses": inits}, **SIDECAR), "tensorflow")

    assert found is not None
    assert (found.message, found.prevents_start) == ("init container proxy: not found", True)


def test_a_sidecar_whose_startup_probe_fails_is_named() -> None:
    main = {"name": "tensorflow", "state": {"waiting": {"reason": "PodInitializing"}}}
    state = {"running": {"startedAt": format_time(START)}}
    inits = [{"name": "proxy", "started": False, "state": state}]
    found = find_stall(pod({"containerStatuses": [main], "initContainerStatuses": inits}, **SIDECAR), "tensorflow")

    assert found is not None
    assert found.reason == "PodInitializing"
    assert found.message.endswith("without having started: its startupProbe or postStart hook has not succeeded")


def test_once_volumes_and_network_are_ready_only_the_image_is_missing() -> None:
    waiting = [{"name": "tensorflow", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    prepared = {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": format_time(START)}

    def message(*conditions: dict[str, Any]) -> str:
        found = find_stall(pod({"containerStatuses": waiting, "conditions": [*conditions]}), "tensorflow")
        assert found is not None
        return found.message

    assert message(prepared).startswith("node n-1 is still pulling the image;")
    assert message().startswith("node n-1 is still pulling the image or mounting volumes;")
