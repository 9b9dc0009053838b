"""Builds the Snapshot for the policy from the caches and the scheduler's own last writes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence

from tarragon.job.status import Admission, JobStatus
from tarragon.operator.informers.candidates import Candidate, Candidates, JobId
from tarragon.operator.informers.informers import Informers
from tarragon.operator.informers.pod_usage import PodUsage
from tarragon.operator.scheduler.admission.maintenance import AdmissionMaintenance
from tarragon.operator.scheduler.job_errors import JobErrors
from tarragon.operator.scheduler.snapshot.demand_cache import DemandCache, Demands
from tarragon.operator.scheduler.snapshot.gang_cache import GangCache
from tarragon.operator.scheduler.snapshot.node_inventory import NodeInventory
from tarragon.operator.scheduler.snapshot.reservations import Reservations
from tarragon.scheduling.api.rules import SchedulingRules
from tarragon.scheduling.api.snapshot import Snapshot


class SnapshotBuilder:
    """Tracks changes between cycles, so that the cost of a snapshot depends on what has changed."""

    def __init__(
        self,
        informers: Informers,
        candidates: Candidates,
        maintenance: AdmissionMaintenance,
        job_errors: JobErrors,
        rules: Callable[[], SchedulingRules],
    ) -> None:
        self._candidates = candidates
        self._rules = rules
        self._job_errors = job_errors
        self._demand_cache = DemandCache(informers)
        self._reservations = Reservations(informers, job_errors, self._demand_cache.pod_affinity)
        self._usage = PodUsage(informers.pods, informers.settings.anchor_namespace)
        self._nodes = NodeInventory(informers, self._usage, self._reservations)
        self._gangs = GangCache(informers, candidates, maintenance, self._demand_cache, job_errors)

    @property
    def pending_changes(self) -> int:
        """Number of jobs with changes that the next snapshot has to read."""
        return self._reservations.pending_changes

    def job_changed(self, job: JobId) -> None:
        self._demand_cache.job_changed(job)
        self._gangs.job_changed(job)
        self._reservations.job_changed(job)

    def nodes_changed(self, jobs: Iterable[JobId]) -> None:
        """Invalidate jobs with replicas assigned to nodes that have changed."""
        for job in jobs:
            self._gangs.job_changed(job)

    def job_finished(self, uid: str, status: JobStatus) -> None:
        """Learn from a finished job what its kind needs."""
        self._gangs.job_finished(uid, status)

    def forget(self, job: JobId) -> None:
        """The job was deleted and was not a candidate."""
        self._reservations.forget(job)

    def demands(self, candidate: Candidate) -> Demands:
        """The job's current demands."""
        return self._demand_cache.demands_of(candidate)

    def satisfies_affinity(self, candidate: Candidate, admission: Admission) -> bool:
        """Whether the admission's nodes still satisfy pod affinity after other jobs' decisions since the snapshot."""
        return self._demand_cache.satisfies_affinity(candidate, admission.nodes)

    def build(self, decided: Sequence[tuple[Candidate, Admission]], now: dt.datetime) -> Snapshot:
        """The snapshot without gangs decided earlier in the cycle; what they will hold is subtracted from the nodes."""
        self._reservations.recompute(self._candidates.all)
        self._gangs.refresh(now)
        undecidable = (self._candidates.all.get(job) for job in self._job_errors.unschedulable_jobs())
        left_out = {candidate.name for candidate in (*(each for each, _ in decided), *undecidable) if candidate}
        self._nodes.add_host_ports(self._demand_cache.requested_host_ports)
        if self._demand_cache.are_gpus_shared:
            self._nodes.share_gpus()
        anti_affinities = self._demand_cache.gpu_anti_affinities
        if anti_affinities is not None or self._usage.has_marks:
            self._nodes.mark_gpus(anti_affinities or frozenset())
        return Snapshot(
            now=now,
            nodes=self._nodes.inventory_minus(self._reservations.additional(decided)),
            unavailable_nodes=self._nodes.unavailable(),
            waiting=self._gangs.waiting(left_out),
            running=self._gangs.running(left_out),
            unchangeable=self._gangs.unchangeable(left_out),
            rules=self._rules(),
        )
