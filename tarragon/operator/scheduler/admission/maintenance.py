"""What is decided about gangs without a policy.

It concerns those whose pods can't be made or bound for too long, those that run although nothing is on record of it,
and those that kube-scheduler places.
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
"""What is to stand in the status of the candidate, which is not what stands there."""


class Holders:
    """Each method looks at candidates as they are at that moment."""

    def __init__(self, world: World, clock: Clock, candidates: Candidates, faults: Faults) -> None:
        self._world = world
        self._clock = clock
        self._candidates = candidates
        self._faults = faults

    def revised(self, now: dt.datetime) -> list[Decided]:
        """Those whose pods could not be made, or bound, for too long; and those that are over it."""

        def after(candidate: Candidate) -> Admission | None:
            if not candidate.is_admitted or is_nowhere(candidate.admission):
                return None
            return revised(self._hold(candidate), now, self._patience(candidate))

        return self._decided(self._candidates.hindered.values(), "see how its pods get on", after)

    def rebuilt(self, now: dt.datetime) -> list[Decided]:
        """Those that run although nothing is on record of it, and those of which somebody else has bound a pod."""

        def after(candidate: Candidate) -> Admission | None:
            before, found = candidate.admission, self._remains(candidate)
            return rebuilt(found, *bounds(candidate), now) if before is None else housed(before, found)

        return self._decided(self._candidates.unrecorded.values(), "see what there is of it", after)

    def left(self, decided: Collection[JobId], now: dt.datetime, *, places_gangs: bool) -> list[Decided]:
        """Jobs that kube-scheduler places: those that were left to it once, and all if we can't place."""

        def after(candidate: Candidate) -> Admission | None:
            if candidate.id in decided or candidate.is_refused:
                return None
            before = candidate.admission or Admission(queued=queued_since(candidate, now))
            return left(before, size_without_us(candidate), now)

        several = self._candidates.left if places_gangs else self._candidates.all
        return self._decided(several.values(), "leave it to kube-scheduler", after)

    def _decided(
        self, several: Iterable[Candidate], doing: str, after: Callable[[Candidate], Admission | None]
    ) -> list[Decided]:
        found: list[Decided] = []
        for candidate in several:
            with self._faults.of(candidate.id, doing):
                admission = after(candidate)
                if admission is not None and admission != candidate.admission:
                    found.append((candidate, admission))
        return found

    def homeless(self, candidate: Candidate, admission: Admission) -> frozenset[Replica]:
        """Not those that have a pod which somebody else is to bind."""
        if candidate.id not in self._candidates.unsettled:
            return frozenset()
        found = homeless(self._household(candidate, admission), self._clock.now())
        return found - self._remains(candidate).unbound if is_nowhere(admission) else found

    def ends(self, now: dt.datetime) -> Iterator[dt.datetime]:
        """When somebody's patience, or rest, is over, or nobody waits any more for a node that is not ready."""
        for job in self._candidates.hindered.keys() | self._candidates.unsettled.keys():
            with self._faults.of(job, "see when its patience ends"):
                yield from (at for at in self._ends_of(self._candidates.all[job], now) if at > now)

    def _ends_of(self, candidate: Candidate, now: dt.datetime) -> Sequence[dt.datetime]:
        admission = candidate.admission
        if admission is None:
            return []
        times = [
            ends_at(admission, candidate.status.obstacle, self._patience(candidate)),
            admission.retry.after if admission.retry is not None else None,
            forgotten_at(admission),
            given_up_at(self._household(candidate, admission), now)
            if candidate.id in self._candidates.unsettled
            else None,
        ]
        return [at for at in times if at is not None]

    def _household(self, candidate: Candidate, admission: Admission) -> Household:
        pods = self._world.pods_of(candidate.object)
        living = (pod for pod in pods if not pod.metadata.is_ending and not pod.is_finished)
        return Household(
            job=candidate.job,
            status=candidate.status,
            admission=admission,
            pods=dict(replicas_of(candidate, living)),
            nodes=self._world.nodes.objects,
            is_cleared=self._world.is_cleared,
        )

    def _remains(self, candidate: Candidate) -> Remains:
        pods = self._world.pods_of(candidate.object)
        return remains(candidate.dialect, candidate.job, candidate.status, pods)

    def _patience(self, candidate: Candidate) -> float:
        return patience_for(candidate.status.obstacle, self._world.settings)

    def _hold(self, candidate: Candidate) -> Hold:
        assert candidate.admission is not None  # noqa: S101 - of those that are admitted
        return Hold(
            admission=candidate.admission,
            obstacle=candidate.status.obstacle,
            least={group.type: least_and_wish(candidate.job, group)[0] for group in candidate.job.groups},
            there=candidate.admission.nodes.keys() & (candidate.status.finished | self._there(candidate)),
            runs=candidate.status.phase is Phase.RUNNING,
        )

    def _there(self, candidate: Candidate) -> set[Replica]:
        pods = self._world.pods_of(candidate.object)
        return {replica for replica, pod in replicas_of(candidate, pods) if self._gets_on(candidate, pod)}

    def _gets_on(self, candidate: Candidate, pod: Pod) -> bool:
        if pod.is_finished or unschedulable(pod) is not None:
            return False
        return not hinders(pod, candidate.framework.main_container, self._clock.now())
