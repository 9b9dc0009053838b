"""Recognises workers whose own command ends by itself: mpirun needs every worker until the launcher has ended."""

from __future__ import annotations

from collections.abc import Iterator

from tarragon.base.errors import Problem
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.mpi.fields import IDLE_COMMAND
from tarragon.frameworks.mpi.objects.pod_wiring import SSHD
from tarragon.frameworks.mpi.options import Transport, options_of
from tarragon.job.model import Replica, ReplicaSpec, TrainingJob
from tarragon.job.phase import Phase
from tarragon.job.replica_ranges import name_replicas
from tarragon.job.status import JobStatus
from tarragon.kube.pod_validation import main_container

_PROGRAM_CODES = range(126)
"""The exit codes of a program: a shell returns the others for programs that it can't start, and for signals."""


def workers_keep_running(job: TrainingJob, status: JobStatus) -> Iterator[Problem]:
    """Report workers that have ended although the job has not succeeded, if their command is the user's."""
    workers = job.replica_spec(WORKER)
    if workers is None or status.phase is Phase.SUCCEEDED or not _has_own_command(workers):
        return
    ended = {replica for replica in _ended(status) if replica.type == WORKER}
    if ended:
        default = IDLE_COMMAND if options_of(job).transport is Transport.EXEC else SSHD
        yield Problem(
            f"{workers.field_path}.template.spec.containers",
            f"the command of {name_replicas(ended)} ended by itself, but mpirun needs its workers to the end",
            f"remove the command, and the operator lets them wait with `{' '.join(default)}`",
        )


def _has_own_command(workers: ReplicaSpec) -> bool:
    """Whether the workers run anything but the operator's default, or a command that starts sshd."""
    container = main_container(workers.template, "") or {}
    words = [*container.get("command", ()), *container.get("args", ())]
    return bool(words) and tuple(words) != IDLE_COMMAND and not any("sshd" in word for word in words)


def _ended(status: JobStatus) -> Iterator[Replica]:
    yield from status.succeeded_replicas
    failure = status.first_failure
    if failure is not None and failure.exit_code in _PROGRAM_CODES:
        yield failure.replica
    for replica, record in status.restarts.items():
        if record.counted_for_backoff_limit and record.exit_code in _PROGRAM_CODES:
            yield replica
