"""How fair a policy was: for how long jobs had more, or less, than their share of the devices.

At each moment, the fair share of a job is an equal part of all devices, but no more than the job can use. A job has
more than that, or less, if it differs by at least one whole replica: with six jobs on sixteen devices, two and three
are fair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import numpy.typing as npt

from tarragon.simulator.results import JobResult, WorkloadResult

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FairnessShares:
    """Parts of the time from the submission to the end of a job, in the mean over all jobs."""

    above: float
    below: float


def fairness_shares(workloads: Sequence[WorkloadResult]) -> FairnessShares:
    shares = [share for workload in workloads for share in _shares_of_jobs(workload)]
    return FairnessShares(above=fmean(above for above, _ in shares), below=fmean(below for _, below in shares))


def _shares_of_jobs(workload: WorkloadResult) -> Sequence[tuple[float, float]]:
    steps = _Steps.of(workload)
    return [steps.shares_of(job) for job in workload.jobs]


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """An equal part of the devices over time: it changes when a job is submitted or ends."""

    moments: Floats
    parts: Floats
    """The part from each of these moments on."""

    @classmethod
    def of(cls, workload: WorkloadResult) -> _Steps:
        begins = np.sort(np.array([job.submitted_at for job in workload.jobs]))
        ends = np.sort(np.array([job.ended_at for job in workload.jobs]))
        moments = np.unique(np.concatenate([begins, ends]))
        active = np.searchsorted(begins, moments, "right") - np.searchsorted(ends, moments, "right")
        return cls(moments, workload.devices / np.maximum(active, 1))

    def shares_of(self, job: JobResult) -> tuple[float, float]:
        """Return the parts of the job's time above and below its fair share."""
        changes = [(job.submitted_at, 0), *((change.at, change.replicas) for change in job.sizes)]
        begins = np.array([at for at, _ in changes])
        sizes = np.array([size for _, size in changes])
        first, last = np.searchsorted(self.moments, [job.submitted_at, job.ended_at])
        edges = np.union1d(self.moments[first : last + 1], begins)
        lasting, starts = np.diff(edges), edges[:-1]
        held = sizes[np.searchsorted(begins, starts, "right") - 1]
        part = self.parts[np.searchsorted(self.moments, starts, "right") - 1] / job.devices
        fair = np.minimum(part, job.maximum)
        whole = max(float(lasting.sum()), 1e-9)
        return (
            float(lasting[held > np.ceil(fair)].sum()) / whole,
            float(lasting[held < np.floor(fair)].sum()) / whole,
        )
