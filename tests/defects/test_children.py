"""Pods, services and manifests: what went wrong with them in the old operators, sections 1.12, 2.1 to 2.9 and 5."""

from __future__ import annotations

from typing import Any

import pytest

from tests.defects.scene import admitted, running, state
from tests.plan.world import World, is_idle, manifest


def failed(body: dict[str, Any]) -> str:
    world = World(body)
    world.settle()
    condition = world.status.condition("Failed")
    assert condition is not None
    return condition.message


def test_a_job_that_is_made_again_waits_until_the_pods_of_its_namesake_are_gone() -> None:
    """2.2: they were taken for its own, or collided with them."""
    old = running({"Worker": 2})
    world = World(manifest({"Worker": 2}))
    for name, pod in old.pods.items():
        owner = {**pod["metadata"]["ownerReferences"][0], "uid": "the-job-before"}
        world.pods[name] = {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}
    world.settle()
    world.admit()
    world.settle()
    assert world.created.total() == 0
    assert not any("deletionTimestamp" in pod["metadata"] for pod in world.pods.values())

    world.pods.clear()
    world.settle()
    assert world.created == {"dist-worker-0": 1, "dist-worker-1": 1}


def test_a_pod_whose_labels_somebody_has_edited_is_neither_lost_nor_made_twice() -> None:
    """2.3, 2.8: an index that could not be parsed was a warning, and the replica was made again."""
    world = running({"Worker": 2})
    pod = world.pods["dist-worker-1"]
    labels = {"training.kubeflow.org/replica-index": "one"}
    world.pods["dist-worker-1"] = {**pod, "metadata": {**pod["metadata"], "labels": labels}}

    assert is_idle(world.decide())


@pytest.mark.parametrize("writes", range(8))
def test_what_was_made_just_before_a_crash_is_not_made_again(writes: int) -> None:
    """2.8: the expectations that were to prevent it were lost with the process, and ORed while it lived."""
    world = World(manifest({"PS": 1, "Worker": 2}))
    world.settle()
    world.admit()
    for _ in range(4):
        world.step(writes)
    world.settle()

    assert set(world.created.values()) == {1}


def test_an_evaluator_whose_replicas_are_not_written_stops_nobody() -> None:
    """1.12, trainer#1135: the operator crashed."""
    body = manifest({"Worker": 1, "Evaluator": 1})
    body["spec"]["tfReplicaSpecs"]["Evaluator"]["replicas"] = None

    assert sorted(admitted(body).pods) == ["dist-evaluator-0", "dist-worker-0"]


@pytest.mark.parametrize("key", ["worker", "WORKER", "wOrKeR"])
def test_a_type_in_other_capitals_is_checked_like_any_other(key: str) -> None:
    """0: the schema's minima held for one spelling only."""
    body = manifest({key: -1})

    assert f"spec.tfReplicaSpecs.{key}.replicas: must be 0 or more, not -1" in failed(body)


def test_one_type_in_two_spellings_is_a_problem() -> None:
    """1.1: one of them won in silence."""
    assert "is the same replica type as" in failed(manifest({"worker": 1, "Worker": 2}))


def test_policies_that_stand_in_spec_itself_hold_in_v1() -> None:
    """1.7, trainer#1241: from 1.0.1 on they were ignored, and nobody was told."""
    world = running({"Worker": 2}, policy="ExitCode")
    flat = admitted(manifest({"Worker": 2}, policy="ExitCode", backoffLimit=1, cleanPodPolicy="All"))
    flat.run()
    flat.exit("dist-worker-1", 137)
    flat.settle()

    assert flat.conditions()["Failed"] == "BackoffLimitExceeded"
    assert flat.own_pods() == {}
    assert state(world) == "Running"


@pytest.mark.parametrize("name", ["1dist", "d" * 60, "Dist", "di.st"])
def test_a_name_that_no_service_can_have_is_told_at_once(name: str) -> None:
    """Section 5, theme 16; trainer#1101, #1745: the job hung, its services could not be made."""
    body = manifest({"Worker": 2})
    body["metadata"]["name"] = name

    assert "metadata.name: gives a replica the name" in failed(body)


def test_a_sidecar_that_never_ends_keeps_no_job_from_ending() -> None:
    """Section 5, theme 22; trainer#1637: with Istio no pod ever completed."""
    world = running({"Chief": 1, "Worker": 1}, run_policy={"cleanPodPolicy": "Running"})
    pod = world.pods["dist-chief-0"]
    statuses = [
        {"name": "istio-proxy", "state": {"running": {}}, "restartCount": 0},
        {"name": "tensorflow", "state": {"terminated": {"exitCode": 0}}, "restartCount": 0},
    ]
    world.pods["dist-chief-0"] = {**pod, "status": {"phase": "Running", "containerStatuses": statuses}}
    world.settle()

    assert state(world) == "Succeeded"
    assert world.own_pods() == {}


def test_a_sidecar_that_fails_fails_nobody() -> None:
    """2.9: its code was looked at, or stood for the main container's."""
    world = running({"Chief": 1, "Worker": 1}, policy="ExitCode")
    pod = world.pods["dist-worker-0"]
    statuses = [
        {"name": "istio-proxy", "state": {"terminated": {"exitCode": 1}}, "restartCount": 0},
        {"name": "tensorflow", "state": {"running": {}}, "restartCount": 0},
    ]
    world.pods["dist-worker-0"] = {**pod, "status": {"phase": "Running", "containerStatuses": statuses}}
    world.settle()

    assert (state(world), world.created["dist-worker-0"]) == ("Running", 1)


def test_a_pod_whose_sidecar_is_being_stopped_stays_for_its_logs_when_the_job_ends() -> None:
    """The kubelet stops init containers with restartPolicy Always after the main container: the pod ends by itself."""
    body = manifest({"Worker": 1}, run_policy={"cleanPodPolicy": "Running"})
    spec = body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["initContainers"] = [{"name": "proxy", "image": "proxy", "restartPolicy": "Always"}]
    world = World(body)
    world.settle()
    world.admit()
    world.settle()
    world.run()
    sidecar = {"name": "proxy", "state": {"running": {}}, "restartCount": 3}
    main = {"name": "tensorflow", "state": {"terminated": {"exitCode": 0}}, "restartCount": 0}
    status = {"phase": "Running", "containerStatuses": [main], "initContainerStatuses": [sidecar]}
    world.pods["dist-worker-0"] = {**world.pods["dist-worker-0"], "status": status}
    world.settle()

    assert state(world) == "Succeeded"
    assert list(world.own_pods()) == ["dist-worker-0"]
    assert "deletionTimestamp" not in world.pods["dist-worker-0"]["metadata"]


def test_the_pod_that_failed_stays_for_its_logs_while_those_that_run_go() -> None:
    """Section 5, theme 11; trainer#128, #536, #661: with the running ones everything was deleted, or nothing."""
    world = running(run_policy={"cleanPodPolicy": "Running"})
    world.exit("dist-worker-1", 1)
    world.settle()

    assert sorted(world.own_pods()) == ["dist-worker-1"]


def test_a_job_that_another_controller_manages_is_not_looked_at() -> None:
    """1.7: managedBy; MultiKueue runs the job in another cluster."""
    world = World(manifest({"Worker": 2}, run_policy={"managedBy": "kueue.x-k8s.io/multikueue", "suspend": True}))
    world.settle()

    assert (world.pods, world.services, world.job.get("status")) == ({}, {}, None)


def test_a_server_that_is_not_ready_is_found_by_its_name() -> None:
    """2.4: names were published when pods were ready, and workers that asked before that crashed."""
    world = running()

    assert all(service["spec"]["publishNotReadyAddresses"] for service in world.services.values())
    assert set(world.services) == set(world.pods)
