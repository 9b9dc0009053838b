"""What a simulation found, job by job. Tables and reports are made from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SizeChange:
    """From this moment on, a job had this size; 0 while it waits."""

    at: float
    replicas: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """How one job fared. Times are in seconds of the virtual time."""

    name: str
    queue: str
    requested: int
    maximum: int
    """The bound within which the scheduler chose its sizes. Like all sizes, a number of replicas."""
    devices: int
    """Of each replica."""
    submitted_at: float
    started_at: float
    ended_at: float
    run_time: float
    """How long it takes alone, at the requested size on as few nodes as possible."""
    one_device_seconds: float
    """How long it takes on one device: its work."""
    sizes: Sequence[SizeChange]
    resizes: int
    evictions: int

    @property
    def completion_time(self) -> float:
        """The job completion time (JCT): from its submission to its end."""
        return self.ended_at - self.submitted_at

    @property
    def queueing_time(self) -> float:
        """From the submission to the first start."""
        return self.started_at - self.submitted_at


@dataclass(frozen=True, slots=True)
class Sample:
    """What held from this moment on."""

    at: float
    waiting: int
    """Jobs that had no devices."""
    allocated: int
    """Devices that jobs held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadResult:
    """One run of a scheduler over one workload. Jobs are in the order of their submission."""

    workload: str
    devices: int
    """All devices of the cluster."""
    jobs: Sequence[JobResult]
    samples: Sequence[Sample]
    rounds: int
    """How often the scheduler was asked."""
    unfinished: int = 0
    """The jobs that can never end, in a deadlock."""

    @property
    def makespan(self) -> float:
        """From the first submission to the last end."""
        return max(job.ended_at for job in self.jobs) - min(job.submitted_at for job in self.jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """What one policy did with all workloads."""

    policy: str
    workloads: Sequence[WorkloadResult]

    @property
    def jobs(self) -> Sequence[JobResult]:
        return [job for workload in self.workloads for job in workload.jobs]
