"""A job as one row of `list`."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import msgspec

from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.rows import brief_reason, header, job_row
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.frameworks.tensorflow.dialects import mlkube
from tarragon.job.phase import Phase
from tarragon.job.progress import Progress
from tarragon.job.status import Admission, Condition, FirstFailure, JobStatus, Obstacle, RestartRecord
from tarragon.kube.meta import CustomObject, CustomObjectMeta
from tests.cli.scenes import BEGIN, at, worker

NARROW = {"is_wide": False, "names_namespace": False}


def a_job(status: JobStatus, *, deleted: dt.datetime | None = None) -> ClusterJob:
    metadata = CustomObjectMeta(
        name="digits", namespace="default", uid="u", creation_timestamp=BEGIN, deletion_timestamp=deleted
    )
    found = CustomObject(api_version="kubeflow.org/v1", kind="TFJob", metadata=metadata)
    return ClusterJob(framework=FRAMEWORKS[0], object=found, job=None, dialect=None, status=status)


def going(ready: int = 2) -> JobStatus:
    admission = Admission(queued_at=BEGIN, admitted_at=BEGIN, size={WORKER: 2})
    return JobStatus(phase=Phase.RUNNING, running_replicas=ready, admission=admission)


def cell(job: ClusterJob, column: str) -> str:
    return job_row(job, at(5), **NARROW)[header(**NARROW).index(column)]


def test_restarts_in_place_count_as_those_by_a_new_pod_do() -> None:
    records = {worker(0): RestartRecord(pod_restarts=2), worker(1): RestartRecord(container_restarts=1)}

    assert cell(a_job(JobStatus(phase=Phase.RUNNING, restarts=records)), "RESTARTS") == "3"


def test_the_failure_that_ended_the_job_is_no_restart() -> None:
    records = {worker(0): RestartRecord(pod_restarts=2, pod_uid="uid-worker-0", is_pod_end_counted=True)}

    assert cell(a_job(JobStatus(phase=Phase.FAILED, restarts=records)), "RESTARTS") == "1"
    assert cell(a_job(JobStatus(phase=Phase.RESTARTING, restarts=records)), "RESTARTS") == "2"


def test_a_job_that_was_deleted_and_is_still_there_is_stopping() -> None:
    assert cell(a_job(going(), deleted=at(3)), "STATE") == "Stopping"
    assert cell(a_job(JobStatus(phase=Phase.SUCCEEDED), deleted=at(3)), "STATE") == "Succeeded"


def test_a_job_says_how_long_it_ran_or_has_been_running() -> None:
    assert cell(a_job(JobStatus(phase=Phase.CREATED)), "DURATION") == "-"
    assert cell(a_job(replace(going(), start_time=at(2))), "DURATION") == "3s"
    over = JobStatus(phase=Phase.SUCCEEDED, start_time=at(-200), completion_time=at(0))
    assert cell(a_job(over), "DURATION") == "3m20s"


def test_a_job_whose_cluster_does_not_run_does_not_go_on_counting() -> None:
    stopped = replace(a_job(replace(going(), start_time=at(2))), is_offline=True)

    assert cell(stopped, "STATE") == "Interrupted"
    assert cell(stopped, "DURATION") == "-"


def test_a_suspended_job_does_not_go_on_counting() -> None:
    suspended = JobStatus(phase=Phase.SUSPENDED, start_time=at(2))

    assert cell(a_job(suspended), "STATE") == "Suspended"
    assert cell(a_job(suspended), "DURATION") == "-"


def test_what_keeps_a_replica_from_being_made_is_told_while_the_others_run() -> None:
    blocked = replace(going(1), obstacle=Obstacle(since=BEGIN, reason="Refused", message="exceeded quota: q"))

    assert cell(a_job(blocked), "PROGRESS OR REASON") == "Refused: exceeded quota: q"


def trained(status: JobStatus) -> JobStatus:
    found = Progress(updated_at=at(0), done=1200, total=4000, remaining_seconds=125, metrics={"loss": "0.1123"})
    return replace(status, progress=found)


def test_a_job_that_runs_says_how_far_its_training_is() -> None:
    assert cell(a_job(trained(going())), "PROGRESS OR REASON") == "step 1,200/4,000 (30 %) · loss 0.1123 · 2m left"


def test_why_a_job_makes_no_progress_comes_before_how_far_it_is() -> None:
    blocked = replace(trained(going(1)), obstacle=Obstacle(since=BEGIN, reason="Refused", message="no"))

    assert cell(a_job(blocked), "PROGRESS OR REASON") == "Refused: no"


def test_a_job_that_does_not_run_has_no_time_left() -> None:
    suspended = trained(JobStatus(phase=Phase.SUSPENDED))

    assert cell(a_job(suspended), "PROGRESS OR REASON") == "step 1,200/4,000 (30 %) · loss 0.1123"
    assert cell(a_job(trained(going()), deleted=at(3)), "PROGRESS OR REASON") == "step 1,200/4,000 (30 %) · loss 0.1123"


def test_a_job_that_succeeded_does_not_seem_incomplete() -> None:
    """The last lines of a program may come too late to be read."""
    over = trained(JobStatus(phase=Phase.SUCCEEDED))
    complete = replace(over, progress=replace(over.progress, done=4000)) if over.progress else over

    assert cell(a_job(over), "PROGRESS OR REASON") == "loss 0.1123"
    assert cell(a_job(complete), "PROGRESS OR REASON") == "step 4,000/4,000 (100 %) · loss 0.1123"


def test_a_job_that_another_operator_has_begun_says_how_it_is_taken_over() -> None:
    theirs = msgspec.Raw(b'{"conditions": [{"type": "Running", "status": "True"}]}')
    job = a_job(JobStatus(phase=Phase.RUNNING))
    begun = replace(job, object=msgspec.structs.replace(job.object, raw_status=theirs))

    assert cell(begun, "PROGRESS OR REASON") == (
        "another operator runs it; to hand it to Tarragon: "
        "kubectl annotate -n default tfjob digits tarragon.dev/adopt=true"
    )


def test_a_job_of_mlkube_that_batch_jobs_run_says_that_they_are_in_the_way() -> None:
    theirs = msgspec.Raw(b'{"phase": "Running", "state": "Running"}')
    job = replace(a_job(JobStatus(phase=Phase.CREATED)), dialect=mlkube.DIALECT)
    begun = replace(job, object=msgspec.structs.replace(job.object, raw_status=theirs))

    assert cell(begun, "PROGRESS OR REASON") == (
        "left to its batch Jobs, which would run every replica a second time beside Tarragon's pods; wait until they "
        "end, or delete them and the job and submit the job again"
    )


def test_a_job_names_the_operator_that_it_is_left_to() -> None:
    job = a_job(JobStatus(phase=Phase.CREATED))
    spec = msgspec.Raw(b'{"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}')
    managed = replace(job, object=msgspec.structs.replace(job.object, raw_spec=spec))

    assert cell(job, "PROGRESS OR REASON") == "no operator has processed it yet"
    assert cell(managed, "PROGRESS OR REASON") == (
        "left to kueue.x-k8s.io/multikueue, which its spec.runPolicy.managedBy names"
    )
    assert cell(replace(job, left_to="left to kubeflow"), "PROGRESS OR REASON") == "left to kubeflow"


def test_a_failed_job_shows_the_exception_of_the_replica_that_failed_first() -> None:
    words = "Traceback (most recent call last):\n  File 'a.py', line 1, in <module>\nValueError: bad shard 17"
    failure = FirstFailure(replica=worker(1), exit_code=1, reason="Error", message=words, at=BEGIN)
    silent = replace(failure, message="")

    assert cell(a_job(JobStatus(phase=Phase.FAILED, first_failure=failure)), "PROGRESS OR REASON") == (
        "worker-1: exit code 1: ValueError: bad shard 17"
    )
    assert cell(a_job(JobStatus(phase=Phase.FAILED, first_failure=silent)), "PROGRESS OR REASON") == (
        "worker-1: exit code 1"
    )


def test_who_was_killed_is_named_with_the_signal() -> None:
    killed = FirstFailure(replica=worker(0), exit_code=137, reason="Error", message="step 7 of 60", at=BEGIN)

    assert cell(a_job(JobStatus(phase=Phase.FAILED, first_failure=killed)), "PROGRESS OR REASON") == (
        "worker-0: killed (SIGKILL, 137)"
    )


def test_what_keeps_a_replica_from_running_is_told_though_nothing_is_given_back() -> None:
    stalled = Condition(
        type="Stalled",
        is_true=True,
        reason="CrashLoopBackOff",
        message="worker-1: exit code 1",
        last_update_time=BEGIN,
        last_transition_time=BEGIN,
    )

    assert (
        cell(a_job(replace(going(1), conditions=(stalled,))), "PROGRESS OR REASON")
        == "CrashLoopBackOff: worker-1: exit code 1"
    )


def test_of_a_replica_that_never_started_its_words_are_told() -> None:
    missing = FirstFailure(replica=worker(1), exit_code=None, reason="ImagePullBackOff", message="not found", at=BEGIN)

    assert cell(a_job(JobStatus(phase=Phase.FAILED, first_failure=missing)), "PROGRESS OR REASON") == (
        "worker-1: ImagePullBackOff: not found"
    )


def test_the_reason_of_a_suspended_job_does_not_repeat_its_state() -> None:
    said = Condition(
        type="Suspended",
        is_true=True,
        reason="TFJobSuspended",
        message="TFJob digits is suspended",
        last_update_time=BEGIN,
        last_transition_time=BEGIN,
    )

    assert cell(a_job(JobStatus(phase=Phase.SUSPENDED, conditions=(said,))), "PROGRESS OR REASON") == ""


def test_a_reason_that_is_cut_begins_with_the_exception_and_reads_on() -> None:
    assert brief_reason("worker-0: exit code 1: ValueError: no") == "worker-0: ValueError: no"
    assert brief_reason("worker-0 failed with exit code 1: ValueError: no") == "worker-0 failed: ValueError: no"
    assert brief_reason("worker-0: exit code 3: ValueError: no") == "worker-0: exit code 3: ValueError: no"
