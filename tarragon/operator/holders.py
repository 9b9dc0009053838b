"""What is decided about gangs without a policy.

It concerns those whose pods can't be made or bound for too long, those that run although nothing is on record of it,
and those that kube-scheduler places.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator

from tarragon.base.clock import Clock
from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.job.status import Admission
from tarragon.kube.core import Pod
from tarragon.operator.candidates import Candidate, Candidates, JobId, least_and_wish, replicas_of
from tarragon.operator.decided import bounds, queued_since, size_without_us
from tarragon.operator.gather import World
from tarragon.plan.homes import Household, given_up_at, homeless, is_unsettled
from tarragon.plan.obstacles import patience_for, unschedulable
from tarragon.plan.patience import Hold, ends_at, revised
from tarragon.plan.rebuilt import Remains, housed, is_nowhere, rebuilt, remains
from tarragon.plan.stalls import hinders
from tarragon.plan.unplaced import is_left, left

Decided = tuple[Candidate, Admission]
"""What is to stand in the status of the candidate, which is not what stands there."""


class Holders:
    """Each method looks at candidates as they are at that moment."""

    def __init__(self, world: World, clock: Clock, candidates: Candidates) -> None:
        self._world = world
        self._clock = clock
        self._candidates = candidates

    def revised(self, now: dt.datetime) -> list[Decided]:
        """Those whose pods could not be made, or bound, for too long; and those that are over it."""
        return [
            (candidate, admission)
            for candidate in self._candidates.open.values()
            if candidate.is_admitted and (candidate.status.obstacle is not None or candidate.has_retry)
            if not is_nowhere(candidate.admission)
            for admission in [revised(self._hold(candidate), now, self._patience(candidate))]
            if admission != candidate.admission
        ]

    def rebuilt(self, now: dt.datetime) -> list[Decided]:
        """Those that run although nothing is on record of it, and those of which somebody else has bound a pod."""
        return [
            (candidate, admission)
            for candidate in self._candidates.open.values()
            for before in [candidate.admission]
            if before is None or is_nowhere(before)
            for found in [self._remains(candidate)]
            for admission in [rebuilt(found, *bounds(candidate), now) if before is None else housed(before, found)]
            if admission is not None and admission != before
        ]

    def left(self, decided: Collection[JobId], now: dt.datetime, *, places_gangs: bool) -> list[Decided]:
        """Jobs that kube-scheduler places: those that were left to it once, and all if we can't place."""
        several = self._candidates.open if places_gangs else self._candidates.all
        return [
            (candidate, admission)
            for candidate in several.values()
            if candidate.id not in decided and not candidate.is_refused
            if is_left(candidate.admission) or not places_gangs
            for before in [candidate.admission or Admission(queued=queued_since(candidate, now))]
            for admission in [left(before, size_without_us(candidate), now)]
            if admission != candidate.admission
        ]

    def homeless(self, candidate: Candidate, admission: Admission) -> frozenset[Replica]:
        """Not those that have a pod which somebody else is to bind."""
        if not is_unsettled(candidate.status, admission, self._world.nodes.objects):
            return frozenset()
        found = homeless(self._household(candidate, admission), self._clock.now())
        return found - self._remains(candidate).unbound if is_nowhere(admission) else found

    def ends(self, now: dt.datetime) -> Iterator[dt.datetime]:
        """When somebody's patience, or rest, is over."""
        for candidate in self._candidates.open.values():
            admission = candidate.admission
            if admission is None:
                continue
            ends = ends_at(admission, candidate.status.obstacle, self._patience(candidate))
            rest = admission.retry.after if admission.retry is not None else None
            for at in (ends, rest, self._given_up_at(candidate, admission, now)):
                if at is not None and at > now:
                    yield at

    def _given_up_at(self, candidate: Candidate, admission: Admission, now: dt.datetime) -> dt.datetime | None:
        """When nobody waits any more for a node of its that is not ready."""
        if not is_unsettled(candidate.status, admission, self._world.nodes.objects):
            return None
        return given_up_at(self._household(candidate, admission), now)

    def _household(self, candidate: Candidate, admission: Admission) -> Household:
        pods = self._world.pods_of(candidate.object)
        living = (pod for pod in pods if not pod.metadata.is_ending and not pod.is_finished)
        return Household(
            job=candidate.job,
            status=candidate.status,
            admission=admission,
            pods=dict(replicas_of(candidate, living)),
            nodes=self._world.nodes.objects,
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
