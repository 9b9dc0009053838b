"""Decides which jobs are reconciled last after a start: those whose status seems to be up to date."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tarragon.job.phase import Phase
from tarragon.kube.codec import decode
from tarragon.kube.core import Pod
from tarragon.kube.meta import CustomObject, PartialObject


class _TarragonStatus(PartialObject, frozen=True):
    state: str = ""
    ready: str = ""
    observed_generation: int = 0


class _Status(PartialObject, frozen=True):
    tarragon: _TarragonStatus = _TarragonStatus()


def seems_up_to_date(job: CustomObject, pods: Sequence[Pod]) -> bool:
    """Whether the job's status seems to be up to date. A cheap guess that only affects the order of reconciles."""
    try:
        status: _Status | None = decode(bytes(job.raw_status), _Status | None)  # type: ignore[arg-type]
    except msgspec.DecodeError:
        return False
    if status is None or job.metadata.is_being_deleted:
        return False
    recorded = status.tarragon
    if recorded.state in {Phase.SUCCEEDED, Phase.FAILED}:
        return True
    running = sum(pod.status.phase == "Running" and not pod.metadata.is_being_deleted for pod in pods)
    return (
        recorded.state == Phase.RUNNING
        and recorded.observed_generation == job.metadata.generation
        and recorded.ready == f"{running}/{len(pods)}"
    )
