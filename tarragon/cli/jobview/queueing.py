"""The queue positions of jobs, computed from the jobs' own status. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence

from tarragon.cli.jobview.jobs import Known
from tarragon.kube.meta import Key
from tarragon.scheduling.api.decision import NEVER_FITS, NEVER_WITHIN_QUOTA

JobKey = tuple[str, Key]
"""The kind, the namespace and the name."""

_LATEST = dt.datetime.max.replace(tzinfo=dt.UTC)


def key(job: Known) -> JobKey:
    return job.framework.kind, job.key


def queue(jobs: Iterable[Known]) -> Sequence[Known]:
    """Returns the jobs that wait for admission, in the order in which they were queued."""
    return sorted((job for job in jobs if waits(job)), key=lambda job: (_queued_at(job), str(job.key)))


def positions(jobs: Iterable[Known]) -> Mapping[JobKey, int]:
    """Returns the queue positions, from 1, of the jobs that wait for admission."""
    return {key(job): position for position, job in enumerate(queue(jobs), start=1)}


def waits(job: Known) -> bool:
    """Whether the job is queued and not admitted yet. A job that could never fit is not in the queue."""
    admission = job.status.admission
    if admission is None or admission.admitted is not None or job.status.phase.is_final:
        return False
    return not never_fits(job)


def never_fits(job: Known) -> bool:
    admission = job.status.admission
    if admission is None or admission.admitted is not None or admission.wait is None or job.status.phase.is_final:
        return False
    return admission.wait.code == NEVER_FITS or is_over_its_quota(job)


def is_over_its_quota(job: Known) -> bool:
    """Whether the job alone exceeds its namespace's quota."""
    admission = job.status.admission
    wait = None if admission is None else admission.wait
    return wait is not None and wait.message.startswith(NEVER_WITHIN_QUOTA)


def _queued_at(job: Known) -> dt.datetime:
    admission = job.status.admission
    return admission.queued if admission is not None else _LATEST
