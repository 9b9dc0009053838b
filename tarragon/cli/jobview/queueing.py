"""The queue positions of jobs, computed from the jobs' own status. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.frameworks.registry import DEFAULT_FRAMEWORK
from tarragon.job.model import parse_gang_name
from tarragon.job.status import WaitReason
from tarragon.kube.meta import Key
from tarragon.scheduling.api.decision import NEVER_FITS, WaitCause

JobKey = tuple[str, Key]
"""The kind, the namespace and the name."""

_CAUSE_OF_FIRST_WORDS = MappingProxyType(
    {"waiting does not help": WaitCause.LARGER_THAN_QUOTA, "no node may run": WaitCause.NO_ELIGIBLE_NODE}
)
_LATEST = dt.datetime.max.replace(tzinfo=dt.UTC)


def job_key(job: ClusterJob) -> JobKey:
    return job.framework.kind, job.key


def queued_jobs(jobs: Iterable[ClusterJob]) -> Sequence[ClusterJob]:
    """Returns the jobs that wait for admission, in the order in which they were queued."""
    return sorted((job for job in jobs if is_queued(job)), key=lambda job: (_queued_at(job), str(job.key)))


def queue_positions(jobs: Iterable[ClusterJob]) -> Mapping[JobKey, int]:
    """Returns the queue positions, from 1, of the jobs that wait for admission."""
    return {job_key(job): position for position, job in enumerate(queued_jobs(jobs), start=1)}


def is_queued(job: ClusterJob) -> bool:
    """Whether the job is queued and not admitted yet. A job that could never fit is not in the queue."""
    admission = job.status.admission
    if admission is None or admission.admitted_at is not None or job.status.phase.is_final:
        return False
    return not never_fits(job)


def never_fits(job: ClusterJob) -> bool:
    admission = job.status.admission
    if admission is None or admission.admitted_at is not None or admission.wait is None or job.status.phase.is_final:
        return False
    return admission.wait.code == NEVER_FITS or wait_cause(admission.wait) == WaitCause.LARGER_THAN_QUOTA


def wait_cause(wait: WaitReason | None) -> str:
    """Returns the cause of the wait; empty if its code has only one."""
    if wait is None:
        return ""
    # Earlier operators recorded no cause; their messages began with these words.
    in_words = (cause for words, cause in _CAUSE_OF_FIRST_WORDS.items() if wait.message.startswith(words))
    return wait.cause or next(in_words, "")


def _queued_at(job: ClusterJob) -> dt.datetime:
    admission = job.status.admission
    return admission.queued_at if admission is not None else _LATEST


def job_name_of_gang(gang: str, namespace: str) -> str:
    """Returns a gang's name as a command in that namespace accepts it, with the namespace if it is another one."""
    kind, key = parse_gang_name(gang)
    name = key.name if key.namespace == namespace else str(key)
    return name if kind == DEFAULT_FRAMEWORK.kind else f"{kind.lower()}/{name}"
