"""Where in the queue a job stands, as far as it can be seen from the jobs themselves. Pure."""

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
    """Those that wait for their places, in the order in which they came."""
    return sorted((job for job in jobs if waits(job)), key=lambda job: (_since(job), str(job.key)))


def positions(jobs: Iterable[Known]) -> Mapping[JobKey, int]:
    """From 1, of those that wait for their places, by kind and key."""
    return {key(job): place for place, job in enumerate(queue(jobs), start=1)}


def waits(job: Known) -> bool:
    """Whether the operator has put it into its queue, and has not let it out yet.

    Nobody stands behind one that never fits.
    """
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
    """Alone, whatever others of its namespace hold."""
    admission = job.status.admission
    wait = None if admission is None else admission.wait
    return wait is not None and wait.message.startswith(NEVER_WITHIN_QUOTA)


def _since(job: Known) -> dt.datetime:
    admission = job.status.admission
    return admission.queued if admission is not None else _LATEST
