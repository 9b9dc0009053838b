"""A job's life as its user sees it: from the manifest to the end."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.job.status import ReplicaStatus
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.plan.view.actions import RejectedCreate
from tests.plan.world import World, is_idle, manifest

ALL = ["dist-ps-0", "dist-worker-0", "dist-worker-1"]


def running(policy: str = "Never", run_policy: dict[str, object] | None = None) -> World:
    world = World(manifest({"PS": 1, "Worker": 2}, policy=policy, run_policy=run_policy))
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    return world


def test_a_job_that_waits_says_why_and_has_nothing_made_for_it() -> None:
    world = World(manifest({"Worker": 2}))
    world.settle()
    world.keep_waiting("InsufficientResources", "the job needs 2 nvidia.com/gpu, short of 1")
    world.settle()

    assert world.tarragon["state"] == "Waiting"
    admitted = world.status.condition("Admitted")
    assert admitted is not None
    assert (admitted.is_true, admitted.reason) == (False, "InsufficientResources")
    assert (world.pods, world.services) == ({}, {})
    assert world.conditions() == {"Created": "TFJobCreated"}


def test_how_many_pods_there_are_is_written_when_one_runs_and_when_they_go() -> None:
    world = World(manifest({"Worker": 2}))
    world.settle()
    world.admit()
    world.settle()
    assert (len(world.pods), world.tarragon["replicas"]) == (2, 0)

    world.patch_job({"status": {"tarragon": {"replicas": 2}}})
    world.vanish("dist-worker-1")
    world.refusal = RejectedCreate(reason="Refused", message="a quota", retry_at=world.now + dt.timedelta(hours=1))
    world.settle()

    assert world.tarragon["replicas"] == 1


def test_services_are_there_before_the_first_pod() -> None:
    world = World(manifest({"PS": 1, "Worker": 2}))
    world.settle()
    world.admit()

    kinds = [[create.resource.kind for create in world.step().creates] for _ in range(3)]

    assert kinds == [["Service"] * 3 + ["Pod"] * 3, [], []]


def test_servers_are_made_before_the_workers_that_look_for_them() -> None:
    world = running()

    assert list(world.pods) == ALL


def test_a_job_runs_when_its_deciding_worker_does() -> None:
    world = World(manifest({"PS": 1, "Worker": 2}))
    world.settle()
    world.admit()
    world.settle()
    world.run("dist-ps-0")
    world.settle()
    assert world.tarragon["state"] == "Starting"

    world.run()
    world.settle()

    assert (world.tarragon["state"], world.tarragon["ready"]) == ("Running", "3/3")
    assert world.conditions() == {"Admitted": "Admitted", "Created": "TFJobCreated", "Running": "TFJobRunning"}
    assert world.status.replica_statuses == {PS: ReplicaStatus(active=1), WORKER: ReplicaStatus(active=2)}


def test_pods_go_where_the_admission_says() -> None:
    world = running()

    assert {name: pod["spec"]["nodeName"] for name, pod in world.pods.items()} == {
        "dist-ps-0": "node-a",
        "dist-worker-0": "node-a",
        "dist-worker-1": "node-b",
    }


def test_a_replica_that_gets_another_place_moves_there() -> None:
    world = running()
    admission = world.status.admission
    assert admission is not None
    world.patch_job({"status": {"tarragon": {"admission": {"nodes": {"Worker": {"node-b": None, "node-c": "1"}}}}}})
    world.settle()

    assert world.pods["dist-worker-1"]["spec"]["nodeName"] == "node-c"
    assert world.created["dist-worker-0"] == 1


def test_worker_0_decides_where_there_is_no_chief() -> None:
    world = running()
    world.exit("dist-worker-0", 0)
    world.settle()

    assert world.tarragon["state"] == "Succeeded"
    assert world.status.completion_time == world.now
    assert world.events[-1].reason == "TFJobSucceeded"


def test_g13_with_all_workers_wanted_one_alone_does_not_decide() -> None:
    world = World(manifest({"Worker": 2}, successPolicy="AllWorkers"))
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.exit("dist-worker-0", 0)
    world.settle()
    assert world.tarragon["state"] == "Running"

    world.exit("dist-worker-1", 0)
    world.settle()

    assert world.tarragon["state"] == "Succeeded"


def test_a_worker_0_that_is_through_is_not_said_to_be_started_again() -> None:
    """Replicas that end at once may be through before others have begun."""
    world = World(manifest({"Worker": 2}, successPolicy="AllWorkers"))
    world.settle()
    world.admit()
    world.settle()
    world.run("dist-worker-0")
    world.settle()
    world.exit("dist-worker-0", 0)
    world.settle()

    assert world.tarragon["state"] == "Running"
    assert "Restarting" not in world.conditions()


def test_workers_that_a_job_can_never_get_are_not_waited_for() -> None:
    """One that may not grow while it runs ends with those that it has, whatever is wished for later."""
    world = World(manifest({"Worker": 2}, successPolicy="AllWorkers"))
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.edit({"tfReplicaSpecs": {"Worker": {"replicas": 3}}})
    world.settle()
    world.exit("dist-worker-0", 0)
    world.settle()
    assert world.tarragon["state"] == "Running"

    world.exit("dist-worker-1", 0)
    world.settle()

    assert world.tarragon["state"] == "Succeeded"


def test_a_chief_decides_whatever_the_workers_do() -> None:
    world = World(manifest({"Chief": 1, "Worker": 1}))
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.exit("dist-worker-0", 0)
    world.settle()
    assert world.tarragon["state"] == "Running"

    world.exit("dist-chief-0", 0)
    world.settle()

    assert world.tarragon["state"] == "Succeeded"


def test_success_wins_over_a_failure_seen_at_the_same_time() -> None:
    world = running()
    world.exit("dist-worker-1", 1)
    world.exit("dist-worker-0", 0)
    world.settle()

    assert world.tarragon["state"] == "Succeeded"


def test_a_replica_that_has_finished_is_not_started_again_when_its_pod_is_gone() -> None:
    world = running()
    world.exit("dist-worker-1", 0)
    world.settle()
    world.vanish("dist-worker-1")
    world.settle()

    assert world.created["dist-worker-1"] == 1
    assert world.tarragon["finished"] == {"Worker": "1"}
    assert world.tarragon["state"] == "Running"


def test_a_pod_that_vanishes_is_made_again_and_nothing_is_counted() -> None:
    world = running()
    world.vanish("dist-worker-1")
    world.settle()

    assert world.created["dist-worker-1"] == 2
    assert world.tarragon["restarts"] == {"total": 0}


def test_a_name_is_not_used_again_while_its_old_pod_is_there() -> None:
    world = running()
    world.delete_pod("dist-worker-1")

    assert [create.body["metadata"]["name"] for create in world.step().creates] == []

    world.bury()
    world.settle()
    assert world.created["dist-worker-1"] == 2


@pytest.mark.parametrize("kind", ["pods", "services"])
def test_a_job_waits_while_somebody_else_has_one_of_its_names(kind: str) -> None:
    world = World(manifest({"Worker": 2}))
    world.stranger("dist-worker-1", kind)
    world.settle()
    world.admit()
    world.settle()

    assert world.conditions()["Blocked"] == "NameTaken"
    assert [event.reason for event in world.events].count("NameTaken") == 1
    assert "dist-worker-1" not in world.own_pods()

    world.pods.pop("dist-worker-1", None)
    if kind == "services":
        del world.services["dist-worker-1"]
    world.settle()
    assert sorted(world.own_pods()) == ["dist-worker-0", "dist-worker-1"]
    assert "Blocked" not in world.conditions()


def test_a_deleted_service_is_made_again() -> None:
    world = running()
    del world.services["dist-ps-0"]
    world.settle()

    assert sorted(world.services) == ALL


def test_scaling_in_removes_the_highest_workers_with_their_services() -> None:
    world = World(manifest({"PS": 1, "Worker": 4}))
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.edit({"tfReplicaSpecs": {"Worker": {"replicas": 2}}})
    world.admit()
    world.settle()

    assert sorted(world.pods) == sorted(world.services) == ALL
    assert world.tarragon["restarts"]["total"] == 0
    assert world.tarragon["state"] == "Running"


def test_an_elastic_job_grows_and_shrinks_without_touching_the_others() -> None:
    elastic: dict[str, Any] = {"min-instances": 1, "max-instances": 4}
    world = World(manifest({"PS": 1, "Worker": 2}, **elastic))
    world.settle()
    world.admit(PS=1, Worker=1)
    world.settle()
    assert sorted(world.services) == ["dist-ps-0", *(f"dist-worker-{index}" for index in range(4))]

    world.run()
    world.admit(PS=1, Worker=3)
    world.settle()
    assert sorted(world.pods) == ["dist-ps-0", "dist-worker-0", "dist-worker-1", "dist-worker-2"]

    world.run()
    world.admit(PS=1, Worker=2)
    world.settle()
    assert sorted(world.pods) == ALL
    assert len(world.services) == 5
    assert set(world.created.values()) == {1}
    assert world.tarragon["replicas"] == 2


def test_a_gang_that_loses_its_places_is_sent_away_and_waits_again() -> None:
    world = running()
    world.withdraw()
    world.settle()

    assert world.own_pods() == {}
    assert world.tarragon["state"] == "Waiting"
    assert world.conditions()["Restarting"] == "TFJobRestarting"

    world.admit()
    world.settle()
    world.run()
    world.settle()
    assert world.tarragon["state"] == "Running"
    assert world.tarragon["restarts"]["total"] == 0


def test_a_job_with_a_scheduler_of_its_own_starts_at_once_and_without_places() -> None:
    job = manifest({"Worker": 2})
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"] = "default-scheduler"
    world = World(job)
    world.settle()

    assert sorted(world.pods) == ["dist-worker-0", "dist-worker-1"]
    assert all("nodeName" not in pod["spec"] for pod in world.pods.values())
    assert world.tarragon["state"] == "Starting"
    assert "Admitted" not in world.conditions()


def test_the_name_of_our_scheduler_is_a_setting() -> None:
    job = manifest({"Worker": 1})
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"] = "mine"
    world = World(job, OperatorSettings(scheduler_name="mine"))
    world.settle()

    assert world.tarragon["state"] == "Waiting"


def test_a_job_that_somebody_else_manages_is_left_alone() -> None:
    world = World(manifest({"Worker": 1}, run_policy={"managedBy": "kueue.x-k8s.io/multikueue"}))

    assert is_idle(world.decide())


def test_what_is_wrong_with_somebody_elses_job_is_not_ours_to_say() -> None:
    world = World(manifest({"Worker": -1}, run_policy={"managedBy": "kueue.x-k8s.io/multikueue"}))

    assert is_idle(world.decide())


def test_a_job_that_is_being_deleted_is_left_to_the_garbage_collector() -> None:
    world = running()
    world.patch_job({"metadata": {"deletionTimestamp": "2026-11-21T10:00:00Z"}})
    world.vanish("dist-worker-1")

    assert is_idle(world.decide())


def test_unknown_fields_do_not_stop_the_operator_and_are_told_once() -> None:
    world = World(manifest({"Worker": 1}, clenPodPolicy="All"))
    world.settle()
    world.admit()
    world.settle()

    assert world.conditions()["FieldsIgnored"] == "UnknownFields"
    events = [event for event in world.events if event.reason == "UnknownFields"]
    assert [(event.type, event.message) for event in events] == [
        ("Warning", "spec.clenPodPolicy: unknown field; did you mean cleanPodPolicy?")
    ]
    assert sorted(world.pods) == ["dist-worker-0"]


def test_doubts_about_the_manifest_are_told_once_as_events() -> None:
    job = manifest({"Worker": 1})
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["restartPolicy"] = "Always"
    world = World(job)
    world.settle()
    world.admit()
    world.settle()

    assert [event.reason for event in world.events].count("SettedPodTemplateRestartPolicy") == 1


def test_the_status_says_which_version_of_the_spec_it_is_about() -> None:
    world = running()
    world.edit({"tfReplicaSpecs": {"Worker": {"template": {"metadata": {"labels": {"a": "b"}}}}}})
    world.settle()

    assert world.tarragon["observedGeneration"] == 2
    assert world.created["dist-worker-0"] == 1


def test_what_is_settled_stays_settled() -> None:
    world = running()
    before = world.job

    world.pass_time(3600)

    assert is_idle(world.settle())
    assert world.job == before


def test_a_huge_gang_is_made_in_bounded_steps() -> None:
    world = World(manifest({"Worker": 1200}))
    world.settle()
    world.admit()

    steps = []
    while not is_idle(step := world.step()):
        steps.append(len(step.creates))

    assert max(steps) == 500
    assert len(world.pods) == len(world.services) == 1200
    assert world.status.phase is Phase.CREATED
    assert world.replica("dist-worker-7") == Replica(WORKER, 7)
