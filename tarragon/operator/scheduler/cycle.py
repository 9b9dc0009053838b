"""The scheduling cycle: builds a snapshot from the caches, runs the policy, and writes admissions to job status.

The scheduler writes only `status.tarragon.admission`. The reconciler reads it; neither calls the other.
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
from tarragon.scheduling.state.memory import Policy

TO_TELL_OF_QUOTAS = "report jobs limited by a quota"
BREATH = 20
"""Jobs that are read before the event loop runs other tasks."""
FAILED_PAUSE = 10.0
"""Seconds until a policy that raised is run again, unless a change starts a cycle earlier."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """Configuration of the scheduler besides its policy. `rules` is called in each cycle: people may edit them."""

    rules: Callable[[], Rules] = Rules
    meter: Meter = field(default_factory=Unmeasured)


class Admitter:
    """Runs scheduling cycles, one at a time. State is kept between cycles, so a cycle reads only what has changed."""

    def __init__(
        self, cluster: Cluster, clock: Clock, informers: World, policy: Policy, config: Conduct = Conduct()
    ) -> None:
        self._clock = clock
        self._informers = informers
        self._meter = config.meter
        self._policy_runner = Judge(policy, config.meter)
        self._faults = Faults()
        self._candidates = Candidates(informers.nodes.objects)
        self._maintenance = Holders(informers, clock, self._candidates, self._faults)
        self._snapshot_builder = Picture(informers, self._candidates, self._maintenance, self._faults, config.rules)
        self._verifier = Claimants(informers, self._candidates, self._snapshot_builder, self._faults)
        self._writer = Telling(cluster, clock, informers, self._candidates)
        self._changes: dict[JobId, None] = {}
        self._placed_gangs = True
        for kind, cache in informers.jobs.items():
            cache.subscribe(partial(self._job_changed, kind))
        informers.nodes.subscribe(self._node_changed)

    @property
    def unread(self) -> int:
        """Number of changes that the next cycle has to read."""
        return len(self._changes) + self._snapshot_builder.unread

    async def snapshot(self) -> Snapshot:
        """The snapshot that a cycle started now would give to the policy."""
        await self._read_changes()
        now = self._clock.now()
        rejected = self._verifier.refused(now) if self._informers.places_gangs else []
        return self._snapshot_builder.snapshot(rejected, now)

    async def round(self) -> float | None:
        """Run one cycle. Returns the seconds until the next one is due if nothing changes, or None."""
        await self._read_changes()
        self._informers.unmade.give_up()
        may_place = self._may_place()
        now = self._clock.now()
        writes = self._verifier.refused(now) if may_place else []
        rejected = {candidate.id for candidate, _ in writes}
        writes += self._without_rejected(rejected, self._maintenance.revised(now))
        writes += self._without_rejected(rejected, self._maintenance.rebuilt(now) if may_place else [])
        snapshot = self._snapshot_builder.snapshot(writes, now) if may_place else None
        checked_decisions = NOTHING if snapshot is None else self._policy_runner.decide(snapshot)
        waits: list[Wait] = []
        decisions: list[AboutGang] = []
        for decided in checked_decisions.sound:
            if isinstance(decided, Wait):
                waits.append(decided)
            else:
                decisions.append(decided)
        writes += self._updates_of(decisions, now)
        writes += self._maintenance.left({candidate.id for candidate, _ in writes}, now, places_gangs=may_place)
        waits += self._failed_waits(waits, {candidate.id for candidate, _ in writes})
        quota_messages = self._quota_messages(snapshot, {candidate.id for candidate, _ in writes})
        due = [
            *self._writer.due(writes),
            *self._updates_of(self._writer.due_waits([*waits, *quota_messages.waits]), now, TO_TELL),
            *self._writer.due_ends(quota_messages.over),
        ]
        await all_of(self._write(*write) for write in due)
        return min(self._timeouts(checked_decisions.again), default=None)

    def _without_rejected(self, rejected: AbstractSet[JobId], updates: Iterable[Decided]) -> Iterator[Decided]:
        """Leave out rejected jobs: a job is written once per cycle, and replacing a rejected admission comes first."""
        return (each for each in updates if each[0].id not in rejected)

    def _updates_of(
        self, decisions: Iterable[AboutGang], now: dt.datetime, doing: str = TO_CARRY_OUT
    ) -> Iterator[Decided]:
        for decision in decisions:
            candidate = self._candidates.named(decision.gang)
            with self._faults.of(candidate.id, doing):
                admission = admission_after(candidate, decision, now)
                if admission != candidate.admission and self._snapshot_builder.agrees(candidate, admission):
                    yield candidate, admission

    def _quota_messages(self, snapshot: Snapshot | None, decided: AbstractSet[JobId]) -> HeldBack:
        """Quota messages of running jobs. They are informational, so errors here do not stop the cycle."""
        with self._faults.beside(TO_TELL_OF_QUOTAS):
            if snapshot is not None:
                return held_back(snapshot, self._candidates, decided)
        return HeldBack()

    def _failed_waits(self, waits: Sequence[Wait], decided: AbstractSet[JobId]) -> Iterator[Wait]:
        """Waits for queued jobs that the scheduler failed on; running jobs need none."""
        failed = sorted(self._faults.jobs() - decided)
        waiting = {wait.gang for wait in waits} if failed else set()
        for job in failed:
            candidate = self._candidates.all.get(job)
            if candidate is None or candidate.is_admitted or candidate.is_refused or candidate.name in waiting:
                continue
            why = f"the scheduler failed on this job and continues without it: could not {self._faults.word(job)}"
            yield Wait(candidate.name, SCHEDULER_ERROR, why)

    def _timeouts(self, again: dt.datetime | None) -> Iterator[float]:
        """Seconds until each moment at which a decision is due without any change."""
        now = self._clock.now()
        for at in (*([] if again is None else [again]), *self._maintenance.ends(now)):
            yield max(0.0, (at - now).total_seconds())
        for pause in (self._writer.pause, self._informers.unmade.pause):
            if pause is not None:
                yield pause
        if self._policy_runner.has_failed:
            yield FAILED_PAUSE

    async def _write(self, candidate: Candidate, admission: Admission) -> None:
        with self._faults.of(candidate.id, TO_WRITE):
            written = await self._writer.write(candidate, admission)
            if written is not None:
                self._update_candidate(candidate.framework, candidate.job.key, written)
                decision_log.tell(candidate, admission, self._meter)

    def _may_place(self) -> bool:
        """Whether gangs are placed in this cycle. Logs each change once; affected jobs report it in their status."""
        placed_before, self._placed_gangs = self._placed_gangs, self._informers.places_gangs
        if placed_before and not self._placed_gangs:
            why = "only some namespaces are watched" if self._informers.settings.namespaces else "nodes are forbidden"
            log.warning("placement is left to kube-scheduler: no gangs, no queue", why=why)
        elif self._placed_gangs and not placed_before:
            log.info("Tarragon places pods again; jobs left to kube-scheduler stay with it")
        return self._placed_gangs

    def _job_changed(self, kind: str, key: Key, _: CustomObject | None, new: CustomObject | None) -> None:
        if new is None and (kind, key) not in self._candidates.all:
            # Otherwise a standby would accumulate every job that ever existed.
            self._changes.pop((kind, key), None)
            self._snapshot_builder.forget((kind, key))
        else:
            self._changes[kind, key] = None

    async def _read_changes(self) -> None:
        """Read the jobs that changed since the last cycle. Reading is deferred to here, so a standby reads nothing."""
        read_count = 0
        while self._changes:
            kind, key = next(iter(self._changes))
            del self._changes[kind, key]
            self._read(self._informers.frameworks[kind], key, self._informers.jobs[kind].objects.get(key))
            read_count += 1
            if read_count % BREATH == 0:
                await self._clock.sleep(0)

    def _read(self, framework: Framework, key: Key, new: CustomObject | None) -> None:
        previous = self._candidates.all.get((framework.kind, key))
        if previous is not None and new == previous.object:
            return  # The event of our own write, which was applied when it was written.
        if new is None or previous is None or not self._writer.is_news_of_the_past(new, previous):
            self._update_candidate(framework, key, new)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        if traits(old) != traits(new):
            self._candidates.node_changed(key.name)
            self._snapshot_builder.nodes_changed(self._candidates.on(key.name))

    def _update_candidate(self, framework: Framework, key: Key, new: CustomObject | None) -> None:
        """Update the candidate from the job's new state. If that fails, the old candidate keeps its assignments."""
        job = framework.kind, key
        is_read = False
        with self._faults.of(job, "read it"):
            candidate = None if new is None else self._candidate(framework, new)
            self._snapshot_builder.job_changed(job)
            if candidate is None:
                self._candidates.drop(job)
                self._verifier.drop(job)
                self._writer.forget(job)
                self._faults.forget(job)
                if new is None:
                    self._informers.verified.forget(job)
                else:
                    self._informers.verified.pass_over(job, new)
            else:
                self._candidates.put(self._verifier.taken_in(candidate))
            is_read = True
        previous = self._candidates.all.get(job)
        if not is_read and previous is not None and new is not None and previous.job.uid == new.metadata.uid:
            # Later writes to the job must be conditional on its current resource version.
            self._candidates.put(replace(previous, object=new))
            self._informers.verified.pass_over(job, new)

    def _candidate(self, framework: Framework, found: CustomObject) -> Candidate | None:
        status = read_status(found.status)
        if not takes_part(found, status):
            return None
        taken = self._informers.readings.of(framework.kind, found)
        return candidate_from(framework, found, taken, status, self._informers.settings)
