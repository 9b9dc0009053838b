"""Fields of a status that show the job's pod as it is, for kinds whose original operator wrote them.

Caches keep only a part of each pod. So the complete pod is read once for each of its versions that the status shows.
"""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.frameworks.plugin import Dialect
from tarragon.job.model import TrainingJob
from tarragon.job.status import JobStatus
from tarragon.kube.core import Pod
from tarragon.kube.meta import Json
from tarragon.plan.view.actions import ObservedJob
from tarragon.plan.view.job_view import JobView


def pod_to_read(observed: ObservedJob) -> Pod | None:
    """Return the pod that has to be read, because the job's status shows another one or another version of it."""
    job, dialect = observed.decoded.job, observed.decoded.dialect
    if job is None or dialect is None or dialect.pod_mirror is None:
        return None
    status = observed.object.status
    shown = dialect.pod_mirror.shown_version(status) if isinstance(status, Mapping) else None
    pod = _pod_of_replica(observed, job, dialect)
    return None if pod is None or pod.metadata.resource_version == shown else pod


def mirror_fields(view: JobView, status: JobStatus, recorded: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the fields that show the pod; none while there is no pod, unless that has ended the job."""
    mirror = view.dialect.pod_mirror
    if mirror is None:
        return {}
    if view.observed.complete_pod is not None:
        return mirror.fields(view.observed.complete_pod)
    if _pod_of_replica(view.observed, view.job, view.dialect) is None and not status.phase.is_final:
        return {}
    return {name: recorded[name] for name in mirror.names if name in recorded}


def _pod_of_replica(observed: ObservedJob, job: TrainingJob, dialect: Dialect) -> Pod | None:
    """Return the pod of the job's only replica; None if there is none."""
    return next((pod for pod in observed.pods if dialect.names.replica_of(job, pod.metadata.name) is not None), None)
