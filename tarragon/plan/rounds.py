"""Which pods were made together: each bears the round of its gang, so that none of an earlier one is taken for new."""

from __future__ import annotations

from tarragon.job.status import JobStatus
from tarragon.kube.core import Pod

ROUND_ANNOTATION = "tarragon.dev/gang-round"
"""On a pod: how often its gang had been made anew when the pod was made; pods of the first round bear none."""


def round_of(pod: Pod) -> int:
    written = pod.metadata.annotations.get(ROUND_ANNOTATION, "")
    return int(written) if written.isascii() and written.isdecimal() else 0


def current(status: JobStatus) -> int:
    return status.gang.round if status.gang is not None else 0


def is_outdated(pod: Pod, status: JobStatus) -> bool:
    """Its gang is made anew without it."""
    return round_of(pod) < current(status)
