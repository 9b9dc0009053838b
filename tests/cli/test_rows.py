"""A job as one row of `list`."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import msgspec

from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.rows import header, job_row
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.frameworks.tensorflow.dialects import mlkube
from tarragon.job.phase import Phase
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


def test_what_keeps_a_replica_from_being_made_is_told_while_the_others_run() -> None:
    blocked = replace(going(1), obstacle=Obstacle(since=BEGIN, reason="Refused", message="exceeded quota: q"))

    assert cell(a_job(blocked), "REASON") == "Refused: exceeded quota: q"


def test_a_job_that_another_operator_has_begun_says_how_it_is_taken_over() -> None:
    theirs = msgspec.Raw(b'{"conditions": [{"type": "Running", "status": "True"}]}')
    job = a_job(JobStatus(phase=Phase.RUNNING))
    begun = replace(job, object=msgspec.structs.replace(job.object, raw_status=theirs))

    assert cell(begun, "REASON") == (
        "another operator runs it; to hand it to Tarragon: "
        "kubectl annotate -n default tfjob digits tarragon.dev/adopt=true"
    )


def test_a_job_of_mlkube_that_batch_jobs_run_says_that_they_are_in_the_way() -> None:
    theirs = msgspec.Raw(b'{"phase": "Running", "state": "Running"}')
    job = replace(a_job(JobStatus(phase=Phase.CREATED)), dialect=mlkube.DIALECT)
    begun = replace(job, object=msgspec.structs.replace(job.object, raw_status=theirs))

    assert cell(begun, "REASON") == (
        "left to its batch Jobs, which would run every replica a second time beside Tarragon's pods; wait until they "
        "end, or delete them and the job and submit the job again"
    )


def test_who_was_killed_is_named_with_the_signal() -> None:
    killed = FirstFailure(replica=worker(0), exit_code=137, reason="Error", message="step 7 of 60", at=BEGIN)

    assert cell(a_job(JobStatus(phase=Phase.FAILED, first_failure=killed)), "REASON") == (
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

    assert cell(a_job(replace(going(1), conditions=(stalled,))), "REASON") == "CrashLoopBackOff: worker-1: exit code 1"


def test_of_a_replica_that_never_started_its_words_are_told() -> None:
    missing = FirstFailure(replica=worker(1), exit_code=None, reason="ImagePullBackOff", message="not found", at=BEGIN)

    assert cell(a_job(JobStatus(phase=Phase.FAILED, first_failure=missing)), "REASON") == (
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

    assert cell(a_job(JobStatus(phase=Phase.SUSPENDED, conditions=(said,))), "REASON") == ""
