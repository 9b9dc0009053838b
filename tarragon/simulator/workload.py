"""The jobs of a workload, and the bounds within which a scheduler may choose their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

BoundsRule = Literal["trace", "rigid", "spec", "wide"]
BOUNDS_RULES: Sequence[BoundsRule] = ("trace", "rigid", "spec", "wide")

_WIDE_MAXIMUM = 64


class SpeedModel(Protocol):
    """How fast a job is, by its placement."""

    def at(self, nodes: int, devices: int) -> float:
        """Return the part of the whole job that is done in one second on so many devices of so many nodes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """One job of a workload."""

    name: str
    kind: str
    """Jobs of one kind learn from each other, as those of one owner and template do on a cluster."""
    queue: str = ""
    submitted_at: float
    """In seconds of the virtual time."""
    requested: int
    minimum: int
    maximum: int
    devices: int = 1
    """Of each replica."""
    least_maximum: int = 1
    """With the bounds `spec`, the job may always grow to this."""
    speed: SpeedModel

    @property
    def is_elastic(self) -> bool:
        return self.maximum > self.minimum


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs that share a cluster, in the order of their submission."""

    name: str
    jobs: Sequence[TrainingJob]


def with_bounds(job: TrainingJob, rule: BoundsRule) -> TrainingJob:
    """Return the job with the bounds that follow from what it requests, or with those of the trace."""
    match rule:
        case "trace":
            return job
        case "rigid":
            return replace(job, minimum=job.requested, maximum=job.requested)
        case "spec":
            return replace(job, minimum=max(1, job.requested // 4), maximum=max(job.least_maximum, 2 * job.requested))
        case "wide":
            return replace(job, minimum=1, maximum=max(_WIDE_MAXIMUM, job.requested))
