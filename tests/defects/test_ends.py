"""How jobs end: the races and dead ends of the old operators' status, section 2.10 of what is known of them."""

from __future__ import annotations

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.exit_codes import SINCE_TRAINING_OPERATOR_1_5, UP_TO_TRAINING_OPERATOR_1_4, ExitClass
from tarragon.job.model import Replica
from tarragon.job.status import ReplicaStatus
from tests.defects.scene import event_messages, running, state
from tests.plan.world import World, manifest


def test_a_job_whose_worker_0_has_succeeded_is_not_failed_by_another_that_fell_at_the_same_time() -> None:
    """2.10 note 0: Succeeded was appended, and then Failed; the last one won."""
    world = running({"Worker": 2})
    world.exit("dist-worker-0", 0)
    world.exit("dist-worker-1", 1)
    world.settle()

    assert (state(world), "Failed" in world.conditions()) == ("Succeeded", False)


def test_the_order_of_the_types_decides_nothing() -> None:
    """2.10 note 4: a failure of a type that came first in the code kept the job from succeeding."""
    world = running({"PS": 1, "Worker": 1, "Evaluator": 1})
    world.exit("dist-evaluator-0", 1)
    world.exit("dist-ps-0", 1)
    world.exit("dist-worker-0", 0)
    world.settle()

    assert state(world) == "Succeeded"


def test_a_job_without_a_single_replica_does_not_succeed_at_once() -> None:
    """2.10 note 0: `replicas: 0` gave no expected worker, and so success."""
    world = World(manifest({"Worker": 0}))
    world.settle()

    assert world.conditions()["Failed"] == "TFJobFailedValidation"


@pytest.mark.parametrize("replicas", [{"PS": 1}, {"Evaluator": 1}, {"PS": 2, "Evaluator": 1}])
def test_a_job_of_which_nobody_decides_the_end_is_refused_and_does_not_run_for_ever(replicas: dict[str, int]) -> None:
    """2.10 note 1."""
    world = World(manifest(replicas))
    world.settle()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert "never ends; add a Worker or a Chief" in failed.message


def test_one_replica_that_is_started_again_hides_no_other_s_failure() -> None:
    """2.10 note 2: an existing Restarting suppressed Failed until Running was set again."""
    world = running({"Chief": 1, "Worker": 2}, policy="ExitCode")
    world.exit("dist-chief-0", 137)
    world.settle()
    assert state(world) == "Restarting"

    world.exit("dist-worker-1", 1)
    world.settle()
    assert state(world) == "Failed"


def test_every_end_has_its_time_whoever_is_restarting_meanwhile() -> None:
    """2.10 note 3b: completionTime stayed nil, and the TTL's step failed for ever."""
    world = running({"Chief": 1, "Worker": 2}, policy="ExitCode", run_policy={"ttlSecondsAfterFinished": 5})
    world.exit("dist-chief-0", 137)
    world.exit("dist-worker-1", 1)
    world.settle()
    assert (state(world), world.status.completion_time) == ("Failed", world.now)

    world.pass_time(5)
    world.step()
    assert world.deleted_job


def test_a_pod_beyond_the_size_is_not_counted() -> None:
    """2.10 note 3c: it was still counted in the pass that removed it."""
    world = running({"Worker": 3}, successPolicy="AllWorkers")
    world.exit("dist-worker-2", 1)
    world.edit({"tfReplicaSpecs": {"Worker": {"replicas": 2}}})
    world.admit()
    world.settle()

    assert state(world) == "Running"
    assert world.status.replica_statuses[WORKER] == ReplicaStatus(active=2)


def test_a_worker_that_is_scaled_away_fails_no_job() -> None:
    """2.15, trainer#2070: a running pod that was being deleted counted as failed."""
    world = running({"Worker": 3})
    world.edit({"tfReplicaSpecs": {"Worker": {"replicas": 2}}})
    world.admit()
    world.step()
    world.exit("dist-worker-2", 143)
    world.settle()

    assert state(world) == "Running"
    assert world.tarragon["restarts"]["total"] == 0


@pytest.mark.parametrize("code", [0, 1, 137, 143])
@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always", "ExitCode"])
def test_a_pod_that_somebody_deletes_fails_no_job_under_any_policy(policy: str, code: int) -> None:
    """2.9, trainer#1560: the pod was told to end, the code that it ended with was taken for the program's own."""
    world = running({"Worker": 2}, policy=policy)
    world.delete_pod("dist-worker-1")
    world.pass_time(3)
    world.exit("dist-worker-1", code)
    world.settle()

    assert state(world) == "Running"
    assert (world.created["dist-worker-1"], world.tarragon["restarts"]["total"]) == (2, 0)


@pytest.mark.parametrize("reason", ["Evicted", "NodeLost", "Preempting", "NodeShutdown", "UnexpectedAdmissionError"])
def test_what_happens_to_a_node_fails_no_job_and_uses_up_no_limit(reason: str) -> None:
    """Section 5, theme 8; trainer#720, #999: such a pod has no exit code, which was taken for a permanent one."""
    world = running({"Worker": 2}, policy="ExitCode", run_policy={"backoffLimit": 1})
    for _ in range(3):
        world.disrupt("dist-worker-1", reason=reason)
        world.settle()
        world.pass_time(60)
        world.settle()
        world.run()
        world.settle()

    assert state(world) == "Running"
    assert world.status.restarts[Replica(WORKER, 1)].counted_for_backoff_limit == 0


def test_a_preempted_pod_that_kubernetes_has_marked_is_no_failure() -> None:
    """Section 5, theme 8: the mark is the condition DisruptionTarget, the reason may be anything."""
    world = running({"Worker": 2})
    status = {"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "Preempted"}]}
    pod = world.pods["dist-worker-1"]
    world.pods["dist-worker-1"] = {**pod, "status": status}
    world.settle()

    assert (state(world), world.created["dist-worker-1"]) == ("Running", 2)


@pytest.mark.parametrize("gone", ["dist-worker-1", "dist-ps-0"])
def test_a_finished_replica_whose_pod_is_collected_is_not_run_again(gone: str) -> None:
    """Section 5, theme 9; trainer#156, #1186, #2453: the cluster collects finished pods while a job still runs."""
    world = running({"Chief": 1, "PS": 1, "Worker": 2})
    world.exit(gone, 0)
    world.settle()
    world.vanish(gone)
    world.settle()

    assert (world.created[gone], state(world)) == (1, "Running")


def test_the_pods_of_a_finished_job_are_not_made_again_when_they_are_collected() -> None:
    """2.11, trainer#1186: the whole job ran a second time."""
    world = running({"Worker": 2}, run_policy={"cleanPodPolicy": "None"})
    world.exit("dist-worker-0", 0)
    world.settle()
    for name in list(world.pods):
        world.vanish(name)
    world.settle()

    assert world.created == {"dist-worker-0": 1, "dist-worker-1": 1}
    assert state(world) == "Succeeded"


def test_what_is_counted_at_the_end_is_what_was() -> None:
    """2.10, trainer#889: the counts were emptied; later, servers that were killed at the end counted as succeeded."""
    world = running({"PS": 2, "Worker": 2}, run_policy={"cleanPodPolicy": "All"})
    world.exit("dist-worker-1", 0)
    world.settle()
    world.exit("dist-worker-0", 0)
    world.settle()

    assert world.status.replica_statuses == {PS: ReplicaStatus(), WORKER: ReplicaStatus(succeeded=2)}


def test_a_job_with_a_chief_is_not_done_because_its_workers_are() -> None:
    """Section 5, theme 17; trainer#634, #751."""
    world = running({"Chief": 1, "Worker": 2})
    for name in ("dist-worker-0", "dist-worker-1"):
        world.exit(name, 0)
    world.settle()

    assert state(world) == "Running"


def test_an_evaluator_that_has_not_finished_keeps_no_job_from_succeeding() -> None:
    """Section 5, theme 17; trainer#1188."""
    world = running({"Chief": 1, "Evaluator": 1})
    world.exit("dist-chief-0", 0)
    world.settle()

    assert state(world) == "Succeeded"


@pytest.mark.parametrize(
    ("code", "early", "late"),
    [
        (1, "permanent", "permanent"),
        (2, "permanent", "permanent"),
        (126, "permanent", "permanent"),
        (127, "permanent", "permanent"),
        (128, "permanent", "retryable"),
        (130, "retryable", "retryable"),
        (134, "permanent", "retryable"),
        (137, "retryable", "retryable"),
        (138, "retryable", "retryable"),
        (139, "permanent", "retryable"),
        (143, "retryable", "retryable"),
        (255, "permanent", "retryable"),
    ],
)
def test_each_generation_keeps_its_own_table_of_exit_codes(code: int, early: str, late: str) -> None:
    """Section 5, theme 4: the meaning changed under people's feet from one release to the next."""
    assert UP_TO_TRAINING_OPERATOR_1_4(code) is ExitClass(early)
    assert SINCE_TRAINING_OPERATOR_1_5(code) is ExitClass(late)


def test_the_exit_code_stands_on_the_job() -> None:
    """Section 5, theme 4; trainer#1749: one had to find it in a pod that was deleted already."""
    world = running({"Worker": 2}, policy="ExitCode")
    world.exit("dist-worker-1", 138, message="lost the lease")
    world.settle()
    record = world.status.restarts[Replica(WORKER, 1)]
    assert (record.exit_code, record.pod_restarts) == (138, 1)

    world.run()
    world.exit("dist-worker-1", 3, message="no such bucket")
    world.settle()
    failure = world.status.first_failure
    assert failure is not None
    assert (failure.exit_code, failure.message) == (3, "no such bucket")


def test_a_failure_is_told_once_and_as_a_warning() -> None:
    """2.13: TFJobFailed was a Normal event, and one path told it twice."""
    world = running({"Worker": 2}, policy="ExitCode")
    world.exit("dist-worker-1", 1)
    world.settle()
    world.pass_time(3600)
    world.settle()

    assert [event.type for event in world.events if event.reason == "TFJobFailed"] == ["Warning"]


def test_nothing_is_told_again_at_each_look() -> None:
    """2.11, 2.13: TFJobSuspended and ExitedWithCode came again with every sync."""
    suspended = running({"Worker": 1}, run_policy={"suspend": True})
    failing = running({"Worker": 2}, policy="ExitCode")
    failing.exit("dist-worker-1", 137)
    for world in (suspended, failing):
        for _ in range(5):
            world.settle()
            world.pass_time(300)

    assert len(event_messages(suspended, "TFJobSuspended")) == 1
    assert len(event_messages(failing, "TFJobRestarting")) == 1
