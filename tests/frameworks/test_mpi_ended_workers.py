"""A worker whose own command ends is named, with the remedy; other ends of workers are no mistake of the manifest."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.mpi.ended_workers import workers_keep_running
from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.job.status import FirstFailure, JobStatus, RestartRecord
from tests.frameworks.jobs import job_of
from tests.frameworks.mpi_jobs import V1, V1ALPHA1, V2BETA1, mpijob, of, template

WORKER_0 = Replica(WORKER, 0)
AT = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)


def hints(status: JobStatus, version: str = V2BETA1, **container: Any) -> list[str]:
    job = job_of(mpijob(version, specs={"Worker": {"template": template(**container)}}))
    return [str(problem) for problem in workers_keep_running(job, status)]


def failed_with(code: int) -> JobStatus:
    failure = FirstFailure(replica=WORKER_0, exit_code=code, reason="Error", message="", at=AT)
    return JobStatus(phase=Phase.FAILED, first_failure=failure)


DONE = JobStatus(phase=Phase.RESTARTING, succeeded_replicas=frozenset({WORKER_0, Replica(WORKER, 1)}))


@pytest.mark.parametrize(("version", "default"), [(V1, "sleep 365d"), (V2BETA1, "/usr/sbin/sshd -De")])
def test_workers_whose_command_has_ended_are_to_do_without_it(version: str, default: str) -> None:
    (hint,) = hints(DONE, version, command=["python", "train.py"])

    assert hint == (
        "spec.mpiReplicaSpecs.Worker.template.spec.containers: the command of worker 0-1 ended by itself, but mpirun "
        f"needs its workers to the end; remove the command, and the operator lets them wait with `{default}`"
    )


@pytest.mark.parametrize("code", [1, 2])
def test_a_worker_that_failed_by_itself_counts(code: int) -> None:
    restarted = RestartRecord(pod_restarts=1, exit_code=code)

    assert hints(failed_with(code), command=["python"])
    assert hints(JobStatus(phase=Phase.RUNNING, restarts={WORKER_0: restarted}), command=["python"])


def test_a_disrupted_worker_and_one_that_was_killed_are_no_mistake() -> None:
    disrupted = RestartRecord(pod_restarts=1, disruptions=1, exit_code=1)

    assert hints(failed_with(137), command=["python"]) == []
    assert hints(JobStatus(phase=Phase.RUNNING, restarts={WORKER_0: disrupted}), command=["python"]) == []


@pytest.mark.parametrize("container", [{}, {"command": ["sleep", "365d"]}, {"command": ["sh", "-c", "exec sshd -D"]}])
def test_workers_that_are_meant_to_wait_are_no_mistake(container: dict[str, Any]) -> None:
    assert hints(failed_with(1), **container) == []


def test_nothing_is_wrong_with_a_job_that_has_succeeded() -> None:
    succeeded = JobStatus(phase=Phase.SUCCEEDED, succeeded_replicas=frozenset({WORKER_0}))

    assert hints(succeeded, command=["python"]) == []


def test_in_v1alpha1_workers_never_run_the_command_of_the_template() -> None:
    assert not list(workers_keep_running(job_of(of(V1ALPHA1)), DONE))
