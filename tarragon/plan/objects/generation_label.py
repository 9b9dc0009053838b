"""Which pods were made together: each bears the round of its gang, so that none of an earlier one is taken for new."""

from __future__ import annotations

from collections.abc import Iterable

from tarragon.job.status import Gang, JobStatus
from tarragon.kube.core import Pod

ROUND_ANNOTATION = "tarragon.dev/gang-round"
"""On a pod: how often its gang had been made anew when the pod was made; pods of the first round bear none."""
MOST_ROUNDS = 10**9 - 1
"""More than any gang lives through. What says more was written by somebody else, and counts as nothing."""


def round_of(pod: Pod) -> int:
    written = pod.metadata.annotations.get(ROUND_ANNOTATION, "")
    is_number = written.isascii() and written.isdecimal() and len(written) <= len(str(MOST_ROUNDS))
    return int(written) if is_number else 0


def current(status: JobStatus) -> int:
    return status.gang.round if status.gang is not None else 0


def following(gang: Gang, pods: Iterable[Pod]) -> int:
    """The round after that on record and after those of all pods there are: a record that was lost began anew."""
    return min(1 + max([gang.round, *(round_of(pod) for pod in pods)]), MOST_ROUNDS)


def is_outdated(pod: Pod, status: JobStatus) -> bool:
    """Its gang is made anew without it."""
    return round_of(pod) < current(status)
