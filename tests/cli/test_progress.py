from __future__ import annotations

import datetime as dt

import pytest

from tarragon.cli.follow.changes import progress_changes, replica_text
from tarragon.cli.jobview.progress import Progress, newest_pods
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.phase import Phase
from tarragon.job.status import Admission, Condition, JobStatus, Obstacle, RestartRecord, WaitReason
from tarragon.kube.core import ContainerState, Pod, PodSpec, PodStatus
from tarragon.kube.meta import ObjectMeta
from tests.cli.scenes import BEGIN, at, ended, pod, progress, ps, running, waiting, worker

FULL = WaitReason(code="InsufficientResources", message="needs 4 GPUs, 1 is free")


def test_every_replica_that_is_to_be_is_shown_before_it_has_a_pod() -> None:
    seen = progress(wished={PS: 1, WORKER: 2})

    assert [(member.name, member.state) for member in seen.replicas] == [
        ("ps-0", "Waiting"),
        ("worker-0", "Waiting"),
        ("worker-1", "Waiting"),
    ]


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (running(), "Running"),
        (waiting("ContainerCreating"), "Starting"),
        (ended(0), "Succeeded"),
        (ended(1), "Failed"),
    ],
)
def test_the_state_of_a_replica_is_that_of_its_main_container(state: ContainerState, word: str) -> None:
    assert progress({worker(0): pod(worker(0), state)}).replicas[0].state == word


def test_a_replica_between_two_tries_is_restarting_and_shows_how_it_ended() -> None:
    crashed = pod(worker(0), waiting("CrashLoopBackOff"), restarts=2, before=ended(137))

    member = progress({worker(0): crashed}).replicas[0]

    assert replica_text(member) == "Restarting, exit code 137, restart 2, CrashLoopBackOff"


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (ended(1), "failed with exit code 1"),
        (ended(137), "was killed (SIGKILL, 137)"),
        (ended(137, "OOMKilled"), "ran out of memory"),
        (ended(0), "ended with exit code 0"),
    ],
)
def test_a_replica_that_runs_again_shows_how_it_ended_before(before: ContainerState, words: str) -> None:
    again = pod(worker(0), restarts=1, before=before)

    member = progress({worker(0): again}).replicas[0]

    assert replica_text(member) == f"Running, restart 1, as it {words}"


def test_a_replica_in_a_new_pod_shows_how_the_one_before_ended() -> None:
    record = RestartRecord(pod_restarts=1, pod_uid="old", exit_code=137, reason="Error", ended_at=BEGIN)
    status = JobStatus(phase=Phase.RUNNING, restarts={worker(0): record})

    member = progress({worker(0): pod(worker(0))}, status=status).replicas[0]

    assert replica_text(member) == "Running, restart 1, as it was killed (SIGKILL, 137)"


def test_restarts_in_the_pod_and_replaced_pods_are_counted_together() -> None:
    record = RestartRecord(pod_restarts=2, pod_uid="old", exit_code=137, reason="Error", ended_at=BEGIN)
    status = JobStatus(phase=Phase.RUNNING, restarts={worker(0): record})

    seen = progress({worker(0): pod(worker(0), restarts=1)}, status=status)

    assert seen.replicas[0].restarts == 3


def test_a_pod_that_is_taken_away_while_it_runs_was_stopped_and_did_not_fail() -> None:
    stopped = pod(ps(0), ended(143), ending=True)

    assert progress({ps(0): stopped}, wished={PS: 1}).replicas[0].state == "Stopped"


@pytest.mark.parametrize(("until", "state"), [(2, "Succeeded"), (3, "Stopped")])
def test_a_program_that_ends_well_only_because_its_pod_is_deleted_was_stopped(until: float, state: str) -> None:
    """Whether or not its end is seen before the pod is gone: an idle worker of an MPIJob exits with 0."""
    told = pod(ps(0), ended(0, until=until), ending=True)
    gone = frozenset({told.metadata.uid})

    assert progress({ps(0): told}, wished={PS: 1}).replicas[0].state == state
    assert progress({ps(0): told}, wished={PS: 1}, gone=gone).replicas[0].state == state


def test_a_replica_on_record_as_succeeded_has_succeeded_whenever_its_pod_was_deleted() -> None:
    status = JobStatus(phase=Phase.SUCCEEDED, succeeded_replicas=frozenset({worker(0)}))

    assert progress({worker(0): pod(worker(0), ended(0), ending=True)}, status=status).replicas[0].state == "Succeeded"


def test_a_pod_that_vanished_keeps_its_end_or_was_stopped() -> None:
    pods = {worker(0): pod(worker(0), ended(1)), worker(1): pod(worker(1))}

    seen = progress(pods, wished={WORKER: 2}, gone=frozenset({"uid-worker-0", "uid-worker-1"}))

    assert [member.state for member in seen.replicas] == ["Failed", "Stopped"]


def test_a_replica_whose_pod_was_cleaned_up_with_the_job_does_not_wait_any_more() -> None:
    status = JobStatus(phase=Phase.SUCCEEDED, succeeded_replicas=frozenset({worker(0)}))

    seen = progress(status=status, wished={PS: 1, WORKER: 1})

    assert [(member.name, member.state) for member in seen.replicas] == [("ps-0", "Stopped"), ("worker-0", "Succeeded")]


def test_a_pod_that_was_cleaned_up_before_its_end_was_seen_has_ended_well_all_the_same() -> None:
    status = JobStatus(phase=Phase.SUCCEEDED, succeeded_replicas=frozenset({worker(0)}))

    seen = progress({worker(0): pod(worker(0))}, status=status, gone=frozenset({"uid-worker-0"}))

    assert (seen.replicas[0].state, seen.replicas[0].exit_code) == ("Succeeded", 0)


def test_of_two_pods_of_a_replica_the_one_created_last_counts() -> None:
    def born(seconds: float, uid: str) -> Pod:
        return Pod(metadata=ObjectMeta(uid=uid, creation_timestamp=at(seconds)), spec=PodSpec(), status=PodStatus())

    found = newest_pods([(worker(0), born(5, "new")), (worker(0), born(1, "old"))])

    assert found[worker(0)].metadata.uid == "new"


def test_a_job_that_waits_for_its_admission_says_so_with_the_reason() -> None:
    status = JobStatus(admission=Admission(queued_at=BEGIN, wait=FULL))

    assert list(progress_changes(None, progress(status=status))) == ["Waiting: needs 4 GPUs, 1 is free"]


def test_nothing_is_said_twice() -> None:
    seen = progress({worker(0): pod(worker(0))})

    assert list(progress_changes(seen, seen)) == []


def test_a_change_names_the_replica_and_its_exit_code() -> None:
    before = progress({worker(0): pod(worker(0))})
    after = progress({worker(0): pod(worker(0), ended(1))})

    assert list(progress_changes(before, after)) == ["worker-0: Failed, exit code 1"]


def test_many_replicas_that_do_the_same_share_a_line() -> None:
    wished = {WORKER: 64}
    after = progress({worker(index): pod(worker(index)) for index in range(64)}, wished=wished)

    assert list(progress_changes(progress(wished=wished), after)) == ["worker-0 … worker-63 (64 replicas): Running"]


def test_the_reason_of_a_restart_is_told_with_the_state() -> None:
    moment = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
    condition = Condition(
        type="Restarting",
        is_true=True,
        reason="TFJobRestarting",
        message="worker-1 exited with code 137",
        last_update_time=moment,
        last_transition_time=moment,
    )
    status = JobStatus(phase=Phase.RESTARTING, conditions=(condition,))

    assert next(progress_changes(progress(), progress(status=status))) == "Restarting: worker-1 exited with code 137"


def test_the_time_that_a_job_took_ends_with_it() -> None:
    status = JobStatus(phase=Phase.SUCCEEDED, completion_time=at(14))

    assert progress(status=status).elapsed(at(500)) == 14


def test_a_restart_in_place_is_still_counted_when_the_pod_is_gone_and_its_exit_code_is_not_the_last() -> None:
    record = RestartRecord(
        container_restarts=1,
        pod_uid="uid-worker-1",
        container_restarts_of_pod=1,
        exit_code=137,
        reason="Error",
        ended_at=BEGIN,
    )
    status = JobStatus(phase=Phase.SUCCEEDED, restarts={worker(1): record})

    member = progress(status=status, wished={WORKER: 2}).replicas[1]

    assert (member.state, member.exit_code, member.restarts) == ("Stopped", None, 1)


def test_a_replica_that_went_on_after_a_restart_has_no_exit_code() -> None:
    restarted = pod(worker(0), running(), restarts=1, before=ended(137))

    going = progress({worker(0): restarted}).replicas[0]
    gone = progress({worker(0): restarted}, gone=frozenset({"uid-worker-0"})).replicas[0]

    assert (going.state, going.exit_code, going.restarts) == ("Running", None, 1)
    assert (gone.state, gone.exit_code, gone.restarts) == ("Stopped", None, 1)


def test_a_restart_in_place_is_counted_once_in_the_record_and_in_the_pod_together() -> None:
    record = RestartRecord(pod_restarts=1, container_restarts=3, pod_uid="uid-worker-0", container_restarts_of_pod=1)
    status = JobStatus(phase=Phase.RUNNING, restarts={worker(0): record})

    assert progress({worker(0): pod(worker(0), restarts=2)}, status=status).replicas[0].restarts == 5


def test_the_failure_that_ended_the_job_is_no_restart_with_or_without_its_pod() -> None:
    record = RestartRecord(pod_restarts=1, pod_uid="uid-worker-0", is_pod_end_counted=True)
    status = JobStatus(phase=Phase.FAILED, restarts={worker(0): record})

    failed = progress({worker(0): pod(worker(0), ended(1))}, status=status).replicas[0]
    cleaned_up = progress(status=status).replicas[0]

    assert (failed.restarts, cleaned_up.restarts) == (0, 0)


def hindered(words: str) -> JobStatus:
    obstacle = Obstacle(since=BEGIN, reason="PodNotPrepared", message=words)
    return JobStatus(phase=Phase.CREATED, admission=Admission(queued_at=BEGIN, admitted_at=BEGIN), obstacle=obstacle)


def test_what_keeps_an_admitted_job_from_starting_is_told_once_and_again_when_it_changes() -> None:
    missing = progress(
        {worker(0): pod(worker(0), waiting("ContainerCreating"))}, status=hindered("all 2 workers: no claim")
    )
    assert next(iter(progress_changes(None, missing))) == "Starting: PodNotPrepared: all 2 workers: no claim"
    assert list(progress_changes(missing, missing)) == []

    other = progress(
        {worker(0): pod(worker(0), waiting("ContainerCreating"))}, status=hindered("all 2 workers: no secret")
    )
    assert list(progress_changes(missing, other)) == ["Starting: PodNotPrepared: all 2 workers: no secret"]


def _restarting(condition: str, seconds: float, admission: Admission) -> Progress:
    said = Condition(
        type=condition,
        is_true=True,
        reason="Preempted",
        message="TFJob n/high has priority 9, this job has priority 1",
        last_update_time=at(seconds),
        last_transition_time=at(seconds),
    )
    return progress(status=JobStatus(phase=Phase.RESTARTING, conditions=(said,), admission=admission))


@pytest.mark.parametrize("condition", ["Evicted", "Restarting"])
def test_words_of_lost_places_are_over_when_there_are_new_ones(condition: str) -> None:
    full = WaitReason(code="Preempted", message="TFJob n/high has priority 9, this job has priority 1")
    lost = _restarting(condition, 4, Admission(queued_at=BEGIN, wait=full))
    again = _restarting(condition, 4, Admission(queued_at=BEGIN, admitted_at=at(7.5)))
    failed = _restarting(condition, 7, Admission(queued_at=BEGIN, admitted_at=at(7.5)))

    words = "TFJob n/high has priority 9, this job has priority 1"
    assert list(progress_changes(None, lost)) == [f"Restarting: preempted by another job ({words}); it is queued again"]
    assert list(progress_changes(lost, again)) == ["Restarting: scheduled again"]
    assert list(progress_changes(lost, failed)) == [f"Restarting: {words}"]
