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
from tarragon.job.status import Admission
from tarragon.kube.core import Pod
from tarragon.operator.informers.candidates import Candidate, Candidates, JobId, least_and_wish, replicas_of
from tarragon.operator.informers.informers import World
from tarragon.operator.scheduler.admission.faults import Faults
from tarragon.operator.scheduler.admission.update import bounds, queued_since, size_without_us
from tarragon.plan.lifecycle.displacement import Household, given_up_at, homeless
from tarragon.plan.lifecycle.start_timeout import Hold, ends_at, forgotten_at, revised
from tarragon.plan.nodes.left_to_kube_scheduler import left
from tarragon.plan.reconcile.adoption import Remains, housed, is_nowhere, rebuilt, remains
from tarragon.plan.status.creation_failures import patience_for, unschedulable
from tarragon.plan.view.stalls import hinders

Decided = tuple[Candidate, Admission]
"""A candidate and the admission that is to replace the one in its status."""


class Holders:
    """Derives admissions from the candidates' current pods and nodes; nothing is cached between calls."""

    def __init__(self, informers: World, clock: Clock, candidates: Candidates, faults: Faults) -> None:
        self._informers = informers
        self._clock = clock
        self._candidates = candidates
        self._faults = faults

    def revised(self, now: dt.datetime) -> list[Decided]:
        """Updates for gangs whose start timeout has expired, and for gangs that have recovered from it."""

        def updated(candidate: Candidate) -> Admission | None:
            if not candidate.is_admitted or is_nowhere(candidate.admission):
                return None
            return revised(self._hold(candidate), now, self._start_timeout(candidate))

        return self._updates(self._candidates.hindered.values(), "check the progress of its pods", updated)

    def rebuilt(self, now: dt.datetime) -> list[Decided]:
        """Admissions for gangs that run without a recorded one, and for gangs with a pod bound by another scheduler."""

        def updated(candidate: Candidate) -> Admission | None:
            before, adoptable = candidate.admission, self._remains(candidate)
            return rebuilt(adoptable, *bounds(candidate), now) if before is None else housed(before, adoptable)

        return self._updates(self._candidates.unrecorded.values(), "adopt its existing pods", updated)

    def left(self, decided: Collection[JobId], now: dt.datetime, *, places_gangs: bool) -> list[Decided]:
        """Admissions of jobs that kube-scheduler places: those left to it before, or all without `places_gangs`."""

        def updated(candidate: Candidate) -> Admission | None:
            if candidate.id in decided or candidate.is_refused:
                return None
            before = candidate.admission or Admission(queued=queued_since(candidate, now))
            return left(before, size_without_us(candidate), now)

        candidates = self._candidates.left if places_gangs else self._candidates.all
        return self._updates(candidates.values(), "leave it to kube-scheduler", updated)

    def _updates(
        self, candidates: Iterable[Candidate], doing: str, updated: Callable[[Candidate], Admission | None]
    ) -> list[Decided]:
        updates: list[Decided] = []
        for candidate in candidates:
            with self._faults.of(candidate.id, doing):
                admission = updated(candidate)
                if admission is not None and admission != candidate.admission:
                    updates.append((candidate, admission))
        return updates

    def homeless(self, candidate: Candidate, admission: Admission) -> frozenset[Replica]:
        """Replicas that must move to another node, except those whose pod another scheduler has yet to bind."""
        if candidate.id not in self._candidates.unsettled:
            return frozenset()
        replicas = homeless(self._household(candidate, admission), self._clock.now())
        return replicas - self._remains(candidate).unbound if is_nowhere(admission) else replicas

    def ends(self, now: dt.datetime) -> Iterator[dt.datetime]:
        """Future moments at which a start timeout or a retry pause ends, or an unready node is given up."""
        for job in self._candidates.hindered.keys() | self._candidates.unsettled.keys():
            with self._faults.of(job, "compute its timeouts"):
                yield from (at for at in self._deadlines(self._candidates.all[job], now) if at > now)

    def _deadlines(self, candidate: Candidate, now: dt.datetime) -> Sequence[dt.datetime]:
        admission = candidate.admission
        if admission is None:
            return []
        times = [
            ends_at(admission, candidate.status.obstacle, self._start_timeout(candidate)),
            admission.retry.after if admission.retry is not None else None,
            forgotten_at(admission),
            given_up_at(self._household(candidate, admission), now)
            if candidate.id in self._candidates.unsettled
            else None,
        ]
        return [at for at in times if at is not None]

    def _household(self, candidate: Candidate, admission: Admission) -> Household:
        pods = self._informers.pods_of(candidate.object)
        active = (pod for pod in pods if not pod.metadata.is_ending and not pod.is_finished)
        return Household(
            job=candidate.job,
            status=candidate.status,
            admission=admission,
            pods=dict(replicas_of(candidate, active)),
            nodes=self._informers.nodes.objects,
            is_cleared=self._informers.is_cleared,
        )

    def _remains(self, candidate: Candidate) -> Remains:
        pods = self._informers.pods_of(candidate.object)
        return remains(candidate.dialect, candidate.job, candidate.status, pods)

    def _start_timeout(self, candidate: Candidate) -> float:
        return patience_for(candidate.status.obstacle, self._informers.settings)

    def _hold(self, candidate: Candidate) -> Hold:
        assert candidate.admission is not None  # noqa: S101 - only called for admitted candidates
        return Hold(
            admission=candidate.admission,
            obstacle=candidate.status.obstacle,
            least={group.type: least_and_wish(candidate.job, group)[0] for group in candidate.job.groups},
            there=candidate.admission.nodes.keys() & (candidate.status.finished | self._progressing(candidate)),
            runs=candidate.status.phase is Phase.RUNNING,
        )

    def _progressing(self, candidate: Candidate) -> set[Replica]:
        pods = self._informers.pods_of(candidate.object)
        return {replica for replica, pod in replicas_of(candidate, pods) if self._is_progressing(candidate, pod)}

    def _is_progressing(self, candidate: Candidate, pod: Pod) -> bool:
        if pod.is_finished or unschedulable(pod) is not None:
            return False
        return not hinders(pod, candidate.framework.main_container, self._clock.now())
