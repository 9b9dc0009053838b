"""Limits, timers and clean-up, sections 2.11 and 2.15 of what is known of the old operators."""

from __future__ import annotations

import datetime as dt

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.model import Replica
from tests.defects.scene import admitted, running, state
from tests.plan.world import World, is_idle, manifest


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_limit_of_more_than_no_restart_is_a_limit_too(limit: int) -> None:
    """2.11, clause A; trainer#1589, #2342: with ExitCode only a limit of 0 ever fired; pods were made for ever."""
    world = running({"Worker": 2}, policy="ExitCode", run_policy={"backoffLimit": limit})
    for _ in range(limit):
        assert state(world) == "Running"
        world.exit("dist-worker-1", 137)
        world.settle()
        world.pass_time(60)
        world.settle()
        world.run()
        world.settle()

    assert world.conditions()["Failed"] == "BackoffLimitExceeded"
    assert world.created["dist-worker-1"] == limit


def test_a_new_pod_does_not_make_the_restarts_of_the_old_one_forgotten() -> None:
    """2.11, clause B; trainer#550: the count was the sum of what living pods show."""
    world = running({"Worker": 2}, policy="OnFailure", run_policy={"backoffLimit": 3})
    world.restart_in_place("dist-worker-1", 2)
    world.settle()
    world.disrupt("dist-worker-1")
    world.settle()
    world.run()
    world.restart_in_place("dist-worker-1", 1)
    world.settle()

    assert world.conditions()["Failed"] == "BackoffLimitExceeded"


def test_the_restarts_of_each_replica_are_known() -> None:
    """2.11; section 5, theme 3: there was one sum for the job."""
    world = running({"Worker": 2}, policy="OnFailure")
    world.restart_in_place("dist-worker-1", 2)
    world.settle()

    assert {replica: record.total for replica, record in world.status.restarts.items()} == {Replica(WORKER, 1): 2}


def test_restarts_come_later_and_later_not_at_once_for_ever() -> None:
    """Section 5, theme 3."""
    world = running({"Worker": 2}, policy="ExitCode")
    world.exit("dist-worker-1", 137)
    world.settle()
    world.run()
    world.exit("dist-worker-1", 137)
    world.settle()

    assert "dist-worker-1" not in world.pods
    assert world.decide().requeue_at == world.now + dt.timedelta(seconds=1)


def test_a_deadline_is_met_though_nothing_else_happens() -> None:
    """2.11, trainer#3358: it was only looked at when something else had happened."""
    world = running(run_policy={"activeDeadlineSeconds": 90})
    due = world.settle().requeue_at
    assert due == world.now + dt.timedelta(seconds=90)

    world.now = due
    world.settle()
    assert world.conditions()["Failed"] == "DeadlineExceeded"


def test_a_deadline_is_met_by_an_operator_that_was_not_there_when_it_passed() -> None:
    """2.11: timers were kept in the memory of a process."""
    world = running(run_policy={"activeDeadlineSeconds": 90})
    world.pass_time(7 * 24 * 3600)
    world.settle()

    assert state(world) == "Failed"


def test_a_clock_that_is_set_back_delays_a_deadline_by_no_more_than_it_was_set_back() -> None:
    world = running(run_policy={"activeDeadlineSeconds": 90})
    due = world.decide().requeue_at
    world.now -= dt.timedelta(seconds=3600)
    world.settle()

    assert state(world) == "Running"
    assert world.decide().requeue_at == due


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_time_to_live_fires_by_itself(seconds: int) -> None:
    """2.11; trainer#1533, #2899."""
    world = running(run_policy={"ttlSecondsAfterFinished": seconds})
    world.exit("dist-worker-0", 0)
    world.step()
    due = world.decide().requeue_at
    assert due is None or due == world.now + dt.timedelta(seconds=seconds)

    world.now = due or world.now
    world.step()
    world.step()
    assert world.deleted_job


def test_a_time_to_live_fires_where_the_time_of_the_end_was_never_written() -> None:
    """2.11: a nil completionTime was an error for ever; jobs of the old operators may still lack it."""
    world = running(run_policy={"ttlSecondsAfterFinished": 60})
    world.exit("dist-worker-0", 0)
    world.settle()
    world.patch_job({"status": {"completionTime": None}})
    world.settle()
    assert not world.deleted_job

    world.pass_time(60)
    world.step()
    assert world.deleted_job


def test_a_suspended_job_uses_up_no_time_to_run() -> None:
    """2.11."""
    world = running(run_policy={"activeDeadlineSeconds": 90, "suspend": True})
    world.pass_time(3600)
    world.settle()

    assert state(world) == "Suspended"


@pytest.mark.parametrize("policy", ["All", "Running", "None"])
def test_no_service_is_left_behind_whatever_becomes_of_the_pods(policy: str) -> None:
    """2.11, trainer#1191: the services of finished pods leaked, under None all of them."""
    world = running(run_policy={"cleanPodPolicy": policy})
    world.exit("dist-worker-1", 0)
    world.settle()
    world.exit("dist-worker-0", 0)
    world.settle()

    assert world.services == {}


def test_what_was_deleted_is_not_deleted_again() -> None:
    """2.11, trainer#997: each resync deleted the same pods again until the informer had seen it."""
    world = running(run_policy={"cleanPodPolicy": "All"})
    world.exit("dist-worker-0", 0)
    assert world.step().deletes

    assert not world.step().deletes
    world.pass_time(600)
    assert is_idle(world.decide())


def test_a_suspension_deletes_once() -> None:
    """2.11, trainer#997."""
    world = running()
    world.edit({"runPolicy": {"suspend": True}})
    assert world.step().deletes

    assert not world.step().deletes


def test_a_suspended_job_is_not_deleted_by_a_time_to_live_and_runs_again() -> None:
    """2.11; section 5, theme 2."""
    world = running(run_policy={"ttlSecondsAfterFinished": 0, "suspend": True})
    world.pass_time(3600)
    world.settle()
    assert not world.deleted_job

    world.edit({"runPolicy": {"suspend": False}})
    world.settle()
    world.admit()
    world.settle()
    assert len(world.pods) == 3


def test_what_kueue_writes_into_a_suspended_job_holds_when_it_is_resumed() -> None:
    """Section 5, theme 2; kueue#297: node selectors, tolerations and gates were not looked at any more."""
    world = running(run_policy={"suspend": True})
    injected = {
        "nodeSelector": {"pool": "spot"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}],
    }
    world.edit({"tfReplicaSpecs": {"Worker": {"template": {"spec": injected, "metadata": {"labels": {"a": "b"}}}}}})
    world.edit({"runPolicy": {"suspend": False}})
    world.settle()
    world.admit()
    world.settle()

    pod = world.pods["dist-worker-1"]
    assert {name: pod["spec"][name] for name in injected} == injected
    assert pod["metadata"]["labels"]["a"] == "b"
    assert "nodeName" not in pod["spec"]  # The API refuses a pod that has both a gate and a node.


def test_replicas_that_are_not_wished_for_any_more_go() -> None:
    """2.15: up to v1 flat they stayed, with a warning in a log."""
    world = running({"PS": 1, "Worker": 4}, cleanPodPolicy="None")
    world.edit({"tfReplicaSpecs": {"Worker": {"replicas": 1}}})
    world.admit()
    world.settle()

    assert sorted(world.pods) == sorted(world.services) == ["dist-ps-0", "dist-worker-0"]


def test_a_job_that_shrinks_keeps_who_decides_it() -> None:
    """2.15; section 5, theme 1."""
    world = running({"Chief": 1, "Worker": 3})
    world.edit({"tfReplicaSpecs": {"Worker": {"replicas": 1}}})
    world.admit()
    world.settle()

    assert sorted(world.pods) == ["dist-chief-0", "dist-worker-0"]
    assert state(world) == "Running"


def test_a_restart_policy_that_is_edited_counts_from_then_on() -> None:
    """2.15: it was asked for at once, while the pods had been made for another one."""
    world = running({"Worker": 2})
    world.edit({"tfReplicaSpecs": {"Worker": {"restartPolicy": "OnFailure"}}})
    world.settle()
    world.exit("dist-worker-1", 1)
    world.settle()

    assert (state(world), world.created["dist-worker-1"]) == ("Running", 2)


def test_a_new_template_makes_no_pod_anew_and_the_next_one_is_made_by_it() -> None:
    """2.15."""
    world = running({"Worker": 2})
    containers = [{"name": "tensorflow", "image": "newer", "command": ["train"]}]
    world.edit({"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": containers}}}}})
    world.settle()
    assert world.created.total() == 2

    world.disrupt("dist-worker-1")
    world.settle()
    images = {name: pod["spec"]["containers"][0]["image"] for name, pod in world.pods.items()}
    assert images == {"dist-worker-0": "train", "dist-worker-1": "newer"}


def test_two_replicas_that_want_one_port_of_a_node_are_told_of_and_do_not_try_for_ever() -> None:
    """2.4, trainer#1797: with the host's network two of them collide where they meet on a node."""
    world = admitted(manifest({"Worker": 2}))
    world.disrupt("dist-worker-1", reason="NodePorts", message="Node didn't have free ports")
    world.settle()

    assert world.conditions()["Blocked"] == "NodeFull"


def test_replicas_on_the_host_s_network_find_each_other_by_name() -> None:
    """2.4: they asked their node's resolver, which knows no service."""
    body = manifest({"Worker": 2})
    body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["hostNetwork"] = True
    world = admitted(body)

    assert {pod["spec"]["dnsPolicy"] for pod in world.pods.values()} == {"ClusterFirstWithHostNet"}


def test_a_running_job_writes_nothing_while_nothing_happens() -> None:
    """2.10: lastReconcileTime was written at each look, and each write was a reason to look again."""
    world = running(run_policy={"activeDeadlineSeconds": 10**6})
    version = world.job["metadata"]["resourceVersion"]
    for _ in range(5):
        world.pass_time(300)
        world.settle()

    assert world.job["metadata"]["resourceVersion"] == version


def test_a_queued_job_writes_nothing_while_nothing_happens() -> None:
    """2.10, trainer#1426: a gang that waited was written to, and its PodGroup made and deleted, over and over."""
    world = World(manifest({"Worker": 2}))
    world.settle()
    world.keep_waiting("InsufficientResources", "no room")
    world.settle()
    version = world.job["metadata"]["resourceVersion"]
    for _ in range(5):
        world.pass_time(300)
        world.settle()

    assert world.job["metadata"]["resourceVersion"] == version
