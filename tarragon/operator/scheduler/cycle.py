"""The scheduler's side of the road: a snapshot from the caches, a policy's decisions, admissions into the jobs' status.

It writes nothing but `status.tarragon.admission`. The reconciler reads that; neither calls the other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from tarragon.base.clock import Clock
from tarragon.client.port import Cluster
from tarragon.frameworks.plugin import Framework
from tarragon.job.encoding import read_status
from tarragon.job.status import Admission
from tarragon.kube.core import Node
from tarragon.kube.meta import CustomObject, Key
from tarragon.operator.informers.candidates import Candidate, Candidates, JobId, candidate_from, takes_part
from tarragon.operator.informers.informers import World
from tarragon.operator.metrics.meter import Meter, Unmeasured
from tarragon.operator.queue.concurrent_writes import all_of
from tarragon.operator.scheduler import decision_log
from tarragon.operator.scheduler.admission.faults import TO_CARRY_OUT, TO_TELL, TO_WRITE, Faults
from tarragon.operator.scheduler.admission.maintenance import Decided, Holders
from tarragon.operator.scheduler.admission.quota_limited import HeldBack, held_back
from tarragon.operator.scheduler.admission.update import admission_after
from tarragon.operator.scheduler.admission.writer import Telling
from tarragon.operator.scheduler.policy_runner import NOTHING, Judge
from tarragon.operator.scheduler.snapshot.eligibility import traits
from tarragon.operator.scheduler.snapshot.snapshot_builder import Picture
from tarragon.operator.scheduler.verification import Claimants
from tarragon.scheduling.api.decision import SCHEDULER_ERROR, AboutGang, Wait
from tarragon.scheduling.api.rules import Rules
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.policies import Policy

TO_TELL_OF_QUOTAS = "tell whom a quota keeps small"
BREATH = 20
"""Jobs that are read before others get their turn on the event loop."""
FAILED_PAUSE = 10.0
"""Seconds until a policy that failed is asked again, if nothing happens before."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """What a round goes by besides its policy. The rules are asked for once a round: people may edit them."""

    rules: Callable[[], Rules] = Rules
    meter: Meter = field(default_factory=Unmeasured)


class Admitter:
    """One round at a time. It remembers what it has read: a round costs reading what has changed since the last."""

    def __init__(
        self, cluster: Cluster, clock: Clock, world: World, policy: Policy, conduct: Conduct = Conduct()
    ) -> None:
        self._clock = clock
        self._world = world
        self._meter = conduct.meter
        self._judge = Judge(policy, conduct.meter)
        self._faults = Faults()
        self._candidates = Candidates(world.nodes.objects)
        self._holders = Holders(world, clock, self._candidates, self._faults)
        self._picture = Picture(world, self._candidates, self._holders, self._faults, conduct.rules)
        self._claimants = Claimants(world, self._candidates, self._picture, self._faults)
        self._telling = Telling(cluster, clock, world, self._candidates)
        self._changes: dict[JobId, None] = {}
        self._places_gangs = True
        for kind, cache in world.jobs.items():
            cache.subscribe(partial(self._changed, kind))
        world.nodes.subscribe(self._node_changed)

    @property
    def unread(self) -> int:
        """Changes that the next round has to take in."""
        return len(self._changes) + self._picture.unread

    async def snapshot(self) -> Snapshot:
        """What a policy would be shown now."""
        await self._catch_up()
        now = self._clock.now()
        refused = self._claimants.refused(now) if self._world.places_gangs else []
        return self._picture.snapshot(refused, now)

    async def round(self) -> float | None:
        """Decide once and write what has changed. Seconds until the next round even if nothing changes, or None."""
        await self._catch_up()
        self._world.unmade.give_up()
        may_place = self._may_place()
        now = self._clock.now()
        writes = self._claimants.refused(now) if may_place else []
        refused = {candidate.id for candidate, _ in writes}
        writes += self._beside(refused, self._holders.revised(now))
        writes += self._beside(refused, self._holders.rebuilt(now) if may_place else [])
        snapshot = self._picture.snapshot(writes, now) if may_place else None
        found = NOTHING if snapshot is None else self._judge.decide(snapshot)
        waits: list[Wait] = []
        others: list[AboutGang] = []
        for decided in found.sound:
            if isinstance(decided, Wait):
                waits.append(decided)
            else:
                others.append(decided)
        writes += self._decided(others, now)
        writes += self._holders.left({candidate.id for candidate, _ in writes}, now, places_gangs=may_place)
        waits += self._troubled(waits, {candidate.id for candidate, _ in writes})
        held = self._held_back(snapshot, {candidate.id for candidate, _ in writes})
        due = [
            *self._telling.due(writes),
            *self._decided(self._telling.due_waits([*waits, *held.waits]), now, TO_TELL),
            *self._telling.due_ends(held.over),
        ]
        await all_of(self._write(*write) for write in due)
        return min(self._pauses(found.again), default=None)

    def _beside(self, refused: AbstractSet[JobId], several: Iterable[Decided]) -> Iterator[Decided]:
        """One write a job: what was refused is replaced first, and everything else is decided after that."""
        return (each for each in several if each[0].id not in refused)

    def _decided(self, several: Iterable[AboutGang], now: dt.datetime, doing: str = TO_CARRY_OUT) -> Iterator[Decided]:
        for decided in several:
            candidate = self._candidates.named(decided.gang)
            with self._faults.of(candidate.id, doing):
                admission = admission_after(candidate, decided, now)
                if admission != candidate.admission and self._picture.agrees(candidate, admission):
                    yield candidate, admission

    def _held_back(self, snapshot: Snapshot | None, decided: AbstractSet[JobId]) -> HeldBack:
        """Mere words: nobody waits for them, and no start hangs on them."""
        with self._faults.beside(TO_TELL_OF_QUOTAS):
            if snapshot is not None:
                return held_back(snapshot, self._candidates, decided)
        return HeldBack()

    def _troubled(self, waits: Sequence[Wait], decided: AbstractSet[JobId]) -> Iterator[Wait]:
        """Those that wait because of a bug of ours are told so; those that run do not need us."""
        troubled = sorted(self._faults.jobs() - decided)
        known = {wait.gang for wait in waits} if troubled else set()
        for job in troubled:
            candidate = self._candidates.all.get(job)
            if candidate is None or candidate.is_admitted or candidate.is_refused or candidate.name in known:
                continue
            why = f"the scheduler can't decide about it, and goes on without it: it can't {self._faults.word(job)}"
            yield Wait(candidate.name, SCHEDULER_ERROR, why)

    def _pauses(self, again: dt.datetime | None) -> Iterator[float]:
        """Seconds until something is to be decided though nothing happens."""
        now = self._clock.now()
        for at in (*([] if again is None else [again]), *self._holders.ends(now)):
            yield max(0.0, (at - now).total_seconds())
        for pause in (self._telling.pause, self._world.unmade.pause):
            if pause is not None:
                yield pause
        if self._judge.has_failed:
            yield FAILED_PAUSE

    async def _write(self, candidate: Candidate, admission: Admission) -> None:
        with self._faults.of(candidate.id, TO_WRITE):
            written = await self._telling.write(candidate, admission)
            if written is not None:
                self._follow(candidate.framework, candidate.job.key, written)
                decision_log.tell(candidate, admission, self._meter)

    def _may_place(self) -> bool:
        """A change is told once, to whoever reads logs; each job that it concerns says so itself."""
        before, self._places_gangs = self._places_gangs, self._world.places_gangs
        if before and not self._places_gangs:
            why = "it keeps the jobs of some namespaces only" if self._world.settings.namespaces else "nodes: forbidden"
            log.warning("placement is left to kube-scheduler: no gangs, no queue", why=why)
        elif self._places_gangs and not before:
            log.info("placement is ours again; jobs that were left to kube-scheduler stay so")
        return self._places_gangs

    def _changed(self, kind: str, key: Key, _: CustomObject | None, new: CustomObject | None) -> None:
        if new is None and (kind, key) not in self._candidates.all:
            # Else whoever stands by for months would remember every job that ever was.
            self._changes.pop((kind, key), None)
            self._picture.forget((kind, key))
        else:
            self._changes[kind, key] = None

    async def _catch_up(self) -> None:
        """Between rounds a change costs nothing, and an operator that only stands by has no rounds."""
        taken_in = 0
        while self._changes:
            kind, key = next(iter(self._changes))
            del self._changes[kind, key]
            self._take_in(self._world.frameworks[kind], key, self._world.jobs[kind].objects.get(key))
            taken_in += 1
            if taken_in % BREATH == 0:
                await self._clock.sleep(0)

    def _take_in(self, framework: Framework, key: Key, new: CustomObject | None) -> None:
        known = self._candidates.all.get((framework.kind, key))
        if known is not None and new == known.object:
            return  # The news of our own write, which was followed when it was written.
        if new is None or known is None or not self._telling.is_news_of_the_past(new, known):
            self._follow(framework, key, new)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        if traits(old) != traits(new):
            self._candidates.node_changed(key.name)
            self._picture.nodes_changed(self._candidates.on(key.name))

    def _follow(self, framework: Framework, key: Key, new: CustomObject | None) -> None:
        """One that can't be read stays what it was: it keeps its places."""
        job = framework.kind, key
        is_read = False
        with self._faults.of(job, "read it"):
            candidate = None if new is None else self._candidate(framework, new)
            self._picture.job_changed(job)
            if candidate is None:
                self._candidates.drop(job)
                self._claimants.drop(job)
                self._telling.forget(job)
                self._faults.forget(job)
                if new is None:
                    self._world.verified.forget(job)
                else:
                    self._world.verified.pass_over(job, new)
            else:
                self._candidates.put(self._claimants.taken_in(candidate))
            is_read = True
        known = self._candidates.all.get(job)
        if not is_read and known is not None and new is not None and known.job.uid == new.metadata.uid:
            # What is written about it depends on the version that it has now.
            self._candidates.put(replace(known, object=new))
            self._world.verified.pass_over(job, new)

    def _candidate(self, framework: Framework, found: CustomObject) -> Candidate | None:
        status = read_status(found.status)
        if not takes_part(found, status):
            return None
        taken = self._world.readings.of(framework.kind, found)
        return candidate_from(framework, found, taken, status, self._world.settings)
