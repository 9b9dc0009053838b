"""Admission updates that need no policy.

They concern gangs whose pods could not be created or bound in time, gangs that run without a recorded admission, and
jobs that kube-scheduler places.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from tarragon.base.clock import Clock
from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.job.replica_state import is_ready
from tarragon.job.status import Admission
from tarragon.kube.core import Pod
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.gpu_shares import GpuShare
from tarragon.operator.informers.candidates import Candidate, Candidates, JobId, min_and_requested, pods_by_replica
from tarragon.operator.informers.informers import Informers
from tarragon.operator.scheduler.admission.update import kube_scheduler_size, min_and_requested_sizes, queued_since
from tarragon.operator.scheduler.job_errors import JobErrors
from tarragon.plan.lifecycle.displacement import AdmittedGang, displaced_replicas, next_displacement_at
from tarragon.plan.lifecycle.start_order import GangReadiness, unmet_prerequisites
from tarragon.plan.lifecycle.start_timeout import GangStart, apply_start_timeout, retry_reset_at, start_timeout_at
from tarragon.plan.nodes.left_to_kube_scheduler import claims_devices, leave_to_kube_scheduler
from tarragon.plan.reconcile.adoption import (
    LivePods,
    find_live_pods,
    has_unassigned_replicas,
    rebuild_admission,
    with_bound_nodes,
)
from tarragon.plan.status.creation_failures import PREVENTS_CREATION, timeout_for, unschedulable_message
from tarragon.plan.view.stalls import is_unable_to_start

AdmissionUpdate = tuple[Candidate, Admission]
"""A candidate and the admission that is to replace the one in its status."""


class AdmissionMaintenance:
    """Derives admissions from the candidates' current pods and nodes; nothing is cached between calls."""

    def __init__(self, informers: Informers, clock: Clock, candidates: Candidates, job_errors: JobErrors) -> None:
        self._informers = informers
        self._clock = clock
        self._candidates = candidates
        self._job_errors = job_errors

    def start_timeout_updates(self, now: dt.datetime) -> list[AdmissionUpdate]:
        """Updates for gangs whose start timeout has expired, and for gangs that have recovered from it."""

        def updated(candidate: Candidate) -> Admission | None:
            if not candidate.is_admitted or has_unassigned_replicas(candidate.admission):
                return None
            return apply_start_timeout(self._gang_start(candidate), now, self._start_timeout(candidate))

        return self._updates(self._candidates.start_blocked.values(), "check the progress of its pods", updated)

    def adoption_updates(self, now: dt.datetime) -> list[AdmissionUpdate]:
        """Admissions for gangs that run without a recorded one, and for gangs with a pod bound by another scheduler."""

        def updated(candidate: Candidate) -> Admission | None:
            before, adoptable = candidate.admission, self._live_pods(candidate)
            if before is not None:
                return with_bound_nodes(before, adoptable)
            # What is missing of a job that claims devices is for kube-scheduler to place: `kube_scheduler_updates`.
            if claims_devices(candidate.job):
                return None
            return rebuild_admission(adoptable, *min_and_requested_sizes(candidate), now)

        return self._updates(self._candidates.unrecorded.values(), "adopt its existing pods", updated)

    def kube_scheduler_updates(
        self, decided: Collection[JobId], now: dt.datetime, *, places_gangs: bool
    ) -> list[AdmissionUpdate]:
        """Admissions of jobs that kube-scheduler places: those left to it before, or all without `places_gangs`."""

        def updated(candidate: Candidate) -> Admission | None:
            if candidate.id in decided or candidate.has_invalid_spec:
                return None
            before = candidate.admission or Admission(queued_at=queued_since(candidate, now))
            return leave_to_kube_scheduler(before, kube_scheduler_size(candidate), now)

        candidates = self._candidates.left_to_kube_scheduler if places_gangs else self._candidates.all
        return self._updates(candidates.values(), "leave it to kube-scheduler", updated)

    def _updates(
        self, candidates: Iterable[Candidate], doing: str, updated: Callable[[Candidate], Admission | None]
    ) -> list[AdmissionUpdate]:
        updates: list[AdmissionUpdate] = []
        for candidate in candidates:
            with self._job_errors.isolate(candidate.id, doing):
                admission = updated(candidate)
                if admission is not None and admission != candidate.admission:
                    updates.append((candidate, admission))
        return updates

    def displaced_replicas(self, candidate: Candidate, admission: Admission) -> frozenset[Replica]:
        """Replicas that must move to another node, except those whose pod another scheduler has yet to bind."""
        if candidate.id not in self._candidates.displaced:
            return frozenset()
        replicas = displaced_replicas(self._admitted_gang(candidate, admission), self._clock.now())
        return replicas - self._live_pods(candidate).unbound if has_unassigned_replicas(admission) else replicas

    def deadlines(self, now: dt.datetime) -> Iterator[dt.datetime]:
        """Moments after `now` at which a start timeout or a retry pause ends, or an unready node is given up."""
        for job in self._candidates.start_blocked.keys() | self._candidates.displaced.keys():
            with self._job_errors.isolate(job, "compute its timeouts"):
                yield from (at for at in self._deadlines(self._candidates.all[job], now) if at > now)

    def _deadlines(self, candidate: Candidate, now: dt.datetime) -> Sequence[dt.datetime]:
        admission = candidate.admission
        if admission is None:
            return []
        times = [
            start_timeout_at(admission, candidate.status.obstacle, self._start_timeout(candidate)),
            admission.backoff.not_before if admission.backoff is not None else None,
            retry_reset_at(admission),
            next_displacement_at(self._admitted_gang(candidate, admission), now)
            if candidate.id in self._candidates.displaced
            else None,
        ]
        return [at for at in times if at is not None]

    def _admitted_gang(self, candidate: Candidate, admission: Admission) -> AdmittedGang:
        pods = self._informers.pods_of(candidate.object)

        def gpu_shortage(replica: Replica, place: str, share: GpuShare) -> str:
            name = candidate.dialect.names.pod(candidate.job, replica)
            return self._informers.gpu_anchors.shortage(Key(candidate.job.key.namespace, name), place, share)

        active = (pod for pod in pods if not pod.metadata.is_being_deleted and not pod.is_finished)
        return AdmittedGang(
            job=candidate.job,
            status=candidate.status,
            admission=admission,
            pods=dict(pods_by_replica(candidate, active)),
            nodes=self._informers.nodes.objects,
            is_being_preempted=self._informers.has_nominated_pods,
            gpu_shortage=gpu_shortage,
        )

    def _live_pods(self, candidate: Candidate) -> LivePods:
        pods = self._informers.pods_of(candidate.object)
        return find_live_pods(candidate.dialect, candidate.job, candidate.status, pods)

    def _start_timeout(self, candidate: Candidate) -> float:
        return timeout_for(candidate.status.obstacle, self._informers.settings)

    def _gang_start(self, candidate: Candidate) -> GangStart:
        assert candidate.admission is not None  # noqa: S101 - only called for admitted candidates
        return GangStart(
            admission=candidate.admission,
            obstacle=candidate.status.obstacle,
            minimum={group.type: min_and_requested(candidate.job, group)[0] for group in candidate.job.replica_specs},
            replicas_in_place=candidate.admission.nodes.keys()
            & (
                candidate.status.succeeded_replicas
                | self._progressing(candidate)
                | self._waiting(candidate, candidate.admission)
            ),
            is_running=candidate.status.phase is Phase.RUNNING,
        )

    def _progressing(self, candidate: Candidate) -> set[Replica]:
        pods = self._informers.pods_of(candidate.object)
        return {replica for replica, pod in pods_by_replica(candidate, pods) if self._is_progressing(candidate, pod)}

    def _waiting(self, candidate: Candidate, admission: Admission) -> set[Replica]:
        """Return replicas without a pod that are not late: they are created once others are ready, or just now."""
        pods = dict(pods_by_replica(candidate, self._informers.pods_of(candidate.object)))
        gang = GangReadiness(
            job=candidate.job,
            status=candidate.status,
            replicas=admission.nodes.keys(),
            is_ready=lambda replica: replica in pods and is_ready(pods[replica]),
        )
        types = {each.waiting for each in unmet_prerequisites(gang)}
        obstacle = candidate.status.obstacle
        if obstacle is None or obstacle.reason not in PREVENTS_CREATION:
            types |= {group.type for group in candidate.job.replica_specs if group.starts_after is not None}
        return {replica for replica in admission.nodes if replica.type in types and replica not in pods}

    def _is_progressing(self, candidate: Candidate, pod: Pod) -> bool:
        if pod.is_finished or unschedulable_message(pod) is not None:
            return False
        return not is_unable_to_start(pod, candidate.framework.main_container, self._clock.now())
