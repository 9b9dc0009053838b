"""The gang round of pods: pods that were created together have the same one, which tells old pods from new ones."""

from __future__ import annotations

from collections.abc import Iterable

from tarragon.job.status import GangRound, JobStatus
from tarragon.kube.core import Pod

ROUND_ANNOTATION = "tarragon.dev/gang-round"
"""On a pod: how often its gang had been restarted when the pod was created. Pods of the first round have none."""
MAX_ROUND = 10**9 - 1
"""More rounds than any gang reaches. A greater value was not written by Tarragon and counts as 0."""


def round_of(pod: Pod) -> int:
    value = pod.metadata.annotations.get(ROUND_ANNOTATION, "")
    is_number = value.isascii() and value.isdecimal() and len(value) <= len(str(MAX_ROUND))
    return int(value) if is_number else 0


def current_round(status: JobStatus) -> int:
    return status.gang_round.number if status.gang_round is not None else 0


def next_round(gang: GangRound, pods: Iterable[Pod]) -> int:
    """Return the next round: above the recorded one and those of all existing pods, in case the record was lost."""
    return min(1 + max([gang.number, *(round_of(pod) for pod in pods)]), MAX_ROUND)


def is_outdated(pod: Pod, status: JobStatus) -> bool:
    """Whether the pod is of an earlier round than the current one."""
    return round_of(pod) < current_round(status)
