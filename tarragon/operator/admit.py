"""The scheduler's side of the road: a snapshot from the caches, a policy's decisions, admissions into the jobs' status.

It writes nothing but `status.tarragon.admission`. The reconciler reads that; neither calls the other.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial

import structlog

from tarragon.base.clock import Clock
from tarragon.cluster.port import Cluster
from tarragon.frameworks.plugin import Framework
from tarragon.job.status import Admission
from tarragon.kube.core import Node
from tarragon.kube.meta import CustomObject, Key
from tarragon.operator.candidates import Candidate, Candidates, JobId, candidate_from, takes_part
from tarragon.operator.decided import admission_after
from tarragon.operator.eligibility import traits
from tarragon.operator.gather import World
from tarragon.operator.holders import Decided, Holders
from tarragon.operator.picture import Picture
from tarragon.operator.telling import RETELL_SECONDS, Telling
from tarragon.scheduling import decision as decisions
from tarragon.scheduling.policies import Policy
from tarragon.scheduling.rules import Rules
from tarragon.scheduling.snapshot import Snapshot

BREATH = 20
"""Jobs that are read before others get their turn on the event loop."""

log = structlog.get_logger(__name__)


class Admitter:
    """One round at a time. It remembers what it has read: a round costs reading what has changed since the last."""

    def __init__(
        self, cluster: Cluster, clock: Clock, world: World, policy: Policy, rules: Callable[[], Rules] = Rules
    ) -> None:
        self._clock = clock
        self._world = world
        self._policy = policy
        self._candidates = Candidates(world.nodes.objects)
        self._holders = Holders(world, clock, self._candidates)
        self._picture = Picture(world, clock, self._candidates, rules)
        self._telling = Telling(cluster, clock, world)
        self._changes: dict[JobId, None] = {}
        self._places_gangs = True
        for kind, cache in world.jobs.items():
            cache.subscribe(partial(self._changed, kind))
        world.nodes.subscribe(self._node_changed)

    @property
    def unread(self) -> int:
        """Changes that the next round has to take in."""
        return len(self._changes) + self._picture.unread

    async def round(self) -> float | None:
        """Decide once and write what has changed. Seconds until the next round even if nothing changes, or None."""
        await self._catch_up()
        may_place = self._may_place()
        now = self._clock.now()
        writes = self._holders.revised(now)
        writes += self._holders.rebuilt(now) if may_place else []
        snapshot = self._picture.snapshot(writes, now)
        decided = self._policy(snapshot) if may_place else ()
        writes += self._decided(decided, snapshot)
        writes += self._holders.left({candidate.id for candidate, _ in writes}, now, places_gangs=may_place)
        due = [
            (candidate, admission) for candidate, admission in writes if self._telling.may_tell(candidate, admission)
        ]
        await _all_of(*(self._write(*write) for write in due))
        waits = [RETELL_SECONDS] if len(due) < len(writes) else []
        return min([*waits, *self._until(decided)], default=None)

    def _decided(self, several: Sequence[decisions.Decision], snapshot: Snapshot) -> Iterator[Decided]:
        by_name = {candidate.name: candidate for candidate in self._candidates.all.values()}
        for decided in several:
            if not isinstance(decided, decisions.Again):
                candidate = by_name[decided.gang]
                admission = admission_after(candidate, decided, snapshot.now)
                if admission != candidate.admission:
                    yield candidate, admission

    def _until(self, several: Sequence[decisions.Decision]) -> Iterator[float]:
        """Seconds until something is to be decided though nothing happens."""
        now = self._clock.now()
        asked: list[dt.datetime] = [decided.at for decided in several if isinstance(decided, decisions.Again)]
        for at in (*asked, *self._holders.ends(now)):
            yield max(0.0, (at - now).total_seconds())

    async def _write(self, candidate: Candidate, admission: Admission) -> None:
        written = await self._telling.write(candidate, admission)
        if written is not None:
            self._follow(candidate.framework, candidate.job.key, written)

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
        if new is None or known is None or not self._telling.is_news_of_the_past(new, known):
            self._follow(framework, key, new)

    def _node_changed(self, _: Key, old: Node | None, new: Node | None) -> None:
        if traits(old) != traits(new):
            self._candidates.nodes_changed()

    def _follow(self, framework: Framework, key: Key, new: CustomObject | None) -> None:
        self._picture.job_changed((framework.kind, key))
        candidate = None if new is None else self._candidate(framework, new)
        if candidate is None:
            self._candidates.drop((framework.kind, key))
            self._telling.forget((framework.kind, key))
        else:
            self._candidates.put(candidate)

    def _candidate(self, framework: Framework, found: CustomObject) -> Candidate | None:
        if not takes_part(found):
            return None
        return candidate_from(framework, found, self._world.readings.of(framework.kind, found), self._world.settings)


async def _all_of(*writes: Coroutine[None, None, None]) -> None:
    """Raises the first error when all have come to an end: the next round must know what they did."""
    for ended in await asyncio.gather(*writes, return_exceptions=True):
        if isinstance(ended, BaseException):
            raise ended
