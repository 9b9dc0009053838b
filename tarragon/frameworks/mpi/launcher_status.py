"""The status of an MPIJob in v1alpha1: the launcher's state and the number of ready workers."""

from __future__ import annotations

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.conditions import FAILED, SUCCEEDED
from tarragon.job.model import TrainingJob
from tarragon.job.phase import Phase
from tarragon.job.status import JobStatus
from tarragon.kube.codec import format_time
from tarragon.kube.meta import Json

_STATES = {Phase.RUNNING: "Active", Phase.RESTARTING: "Active", Phase.SUCCEEDED: SUCCEEDED, Phase.FAILED: FAILED}


def status_fields(_: TrainingJob, status: JobStatus) -> dict[str, Json]:
    """`launcherStatus` is absent until the launcher has run."""
    workers = status.replica_statuses.get(WORKER)
    fields: dict[str, Json] = {"workerReplicas": 0 if workers is None else workers.active}
    if status.phase in _STATES:
        fields["launcherStatus"] = _STATES[status.phase]
    if status.start_time is not None:
        fields["startTime"] = format_time(status.start_time)
    if status.completion_time is not None:
        fields["completionTime"] = format_time(status.completion_time)
    return fields


def invalid_job_fields(status: JobStatus) -> dict[str, Json]:
    """The status fields of an invalid job."""
    ended = {} if status.completion_time is None else {"completionTime": format_time(status.completion_time)}
    return {"launcherStatus": FAILED, **ended}
