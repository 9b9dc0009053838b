"""The scheduling cycle: builds a snapshot from the caches, runs the policy, and writes admissions to job status.

The scheduler writes `status.tarragon.admission`, and with it the status that the reconciler would derive from it. The
reconciler reads it; neither calls the other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from tarragon.base.clock import Clock
from tarragon.client.concurrent_writes import run_all
from tarragon.client.event_recorder import EventRecorder
from tarragon.client.port import Client
from tarragon.frameworks.dialect_detection import recorded_generation
from tarragon.frameworks.plugin import Framework
from tarragon.job.status import Admission, JobStatus
from tarragon.job.status_encoding import recorded_status
from tarragon.kube.core import Node
from tarragon.kube.meta import CustomObject, Key
from tarragon.operator.informers.candidates import Candidate, Candidates, JobId, candidate_from, is_candidate
from tarragon.operator.informers.informers import Informers
from tarragon.operator.metrics.meter import Meter, NoMeter
from tarragon.operator.scheduler import decision_log
from tarragon.operator.scheduler.admission.maintenance import AdmissionMaintenance, AdmissionUpdate
from tarragon.operator.scheduler.admission.quota_limited import QuotaLimitUpdates, quota_limit_updates
from tarragon.operator.scheduler.admission.update import apply_decision
from tarragon.operator.scheduler.admission.writer import AdmissionWriter
from tarragon.operator.scheduler.job_errors import (
    APPLY_DECISION,
    REPORT_WAIT,
    WRITE_DECISION,
    JobErrors,
    defer_failed_job,
)
from tarragon.operator.scheduler.pending_admissions import PendingAdmissions
from tarragon.operator.scheduler.policy_runner import PolicyRunner
from tarragon.operator.scheduler.snapshot.eligibility import scheduling_traits
from tarragon.operator.scheduler.snapshot.snapshot_builder import SnapshotBuilder
from tarragon.plan.reconcile.generation import needs_no_mark
from tarragon.scheduling.api.decision import Defer, GangDecision
from tarragon.scheduling.api.rules import SchedulingRules
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.cycle.decision_validation import ValidatedDecisions
from tarragon.scheduling.state.memory import Policy

READS_PER_YIELD = 20
"""Jobs that are read before the event loop runs other tasks."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionConfig:
    """Configuration of the scheduler besides its policy. `rules` is called in each cycle: people may edit them."""

    rules: Callable[[], SchedulingRules] = SchedulingRules
    meter: Meter = field(default_factory=NoMeter)
    recorder: EventRecorder | None = None
    """Records the events of admissions; None to have one of its own."""


class GangScheduler:
    """Runs scheduling cycles, one at a time. State is kept between cycles, so a cycle reads only what has changed."""

    def __init__(
        self,
        cluster: Client,
        clock: Clock,
        informers: Informers,
        policy: Policy,
        config: AdmissionConfig = AdmissionConfig(),
    ) -> None:
        self._clock = clock
        self._informers = informers
        self._meter = config.meter
        self._policy_runner = PolicyRunner(policy, config.meter)
        self._job_errors = JobErrors()
        self._candidates = Candidates(informers.nodes.objects)
        self._maintenance = AdmissionMaintenance(informers, clock, self._candidates, self._job_errors)
        self._snapshot_builder = SnapshotBuilder(
            informers, self._candidates, self._maintenance, self._job_errors, config.rules
        )
        self._verifier = PendingAdmissions(informers, self._candidates, self._snapshot_builder, self._job_errors)
        self._writer = AdmissionWriter(cluster, clock, informers, self._candidates)
        self._recorder = config.recorder or EventRecorder(cluster, clock)
        self._changes: dict[JobId, None] = {}
        self._considered: list[tuple[JobId, str]] = []
        """The new jobs that the current cycle is the first to look at, with their uids."""
        self._placed_gangs = True
        for kind, cache in informers.jobs.items():
            cache.add_event_handler(partial(self._job_changed, kind))
        informers.nodes.add_event_handler(self._node_changed)

    def reread(self, kind: str) -> None:
        """Look at all jobs of a kind again in the next cycle: another operator takes it over, or leaves it."""
        for key, found in self._informers.jobs[kind].objects.items():
            self._informers.accepted_admissions.revoke((kind, key))
            self._job_changed(kind, key, None, found)

    @property
    def pending_changes(self) -> int:
        """Number of changes that the next cycle has to read."""
        return len(self._changes) + self._snapshot_builder.pending_changes

    async def snapshot(self) -> Snapshot:
        """The snapshot that a cycle started now would give to the policy."""
        await self._read_changes()
        now = self._clock.now()
        rejected = self._verifier.verify_all(now) if self._informers.can_place_pods else []
        return self._snapshot_builder.build(rejected, now)

    async def run_cycle(self) -> float | None:
        """Run one cycle. Returns the seconds until the next one is due if nothing changes, or None."""
        try:
            return await self._run_cycle()
        finally:
            considered, self._considered = self._considered, []
            self._informers.first_decisions.considered(considered)

    async def _run_cycle(self) -> float | None:
        await self._read_changes()
        self._informers.assumed_pods.drop_expired()
        may_place = self._may_place()
        now = self._clock.now()
        writes = self._verifier.verify_all(now) if may_place else []
        rejected = {candidate.id for candidate, _ in writes}
        writes += self._without_rejected(rejected, self._maintenance.start_timeout_updates(now))
        writes += self._without_rejected(rejected, self._maintenance.adoption_updates(now) if may_place else [])
        snapshot = self._snapshot_builder.build(writes, now) if may_place else None
        checked_decisions = ValidatedDecisions() if snapshot is None else self._policy_runner.run(snapshot)
        waits: list[Defer] = []
        decisions: list[GangDecision] = []
        for decided in checked_decisions.accepted:
            if isinstance(decided, Defer):
                waits.append(decided)
            else:
                decisions.append(decided)
        writes += self._updates_of(decisions, now)
        writes += self._maintenance.kube_scheduler_updates(
            {candidate.id for candidate, _ in writes}, now, places_gangs=may_place
        )
        decided_jobs = {candidate.id for candidate, _ in writes}
        waits += self._failed_waits(waits, decided_jobs)
        quota_updates = QuotaLimitUpdates()
        if snapshot is not None:
            deferred = {wait.gang for wait in waits}
            quota_updates = quota_limit_updates(snapshot, self._candidates, self._job_errors, decided_jobs, deferred)
        due = [
            *self._writer.due_updates(writes),
            *self._updates_of(self._writer.due_waits([*waits, *quota_updates.waits]), now, REPORT_WAIT),
            *self._writer.due_ended_waits(quota_updates.ended_waits),
        ]
        await run_all(self._write(*write) for write in due)
        return min(self._timeouts(now, checked_decisions.requeue_at), default=None)

    def _without_rejected(
        self, rejected: AbstractSet[JobId], updates: Iterable[AdmissionUpdate]
    ) -> Iterator[AdmissionUpdate]:
        """Leave out rejected jobs: a job is written once per cycle, and replacing a rejected admission comes first."""
        return (each for each in updates if each[0].id not in rejected)

    def _updates_of(
        self, decisions: Iterable[GangDecision], now: dt.datetime, doing: str = APPLY_DECISION
    ) -> Iterator[AdmissionUpdate]:
        for decision in decisions:
            candidate = self._candidates.by_name(decision.gang)
            with self._job_errors.isolate(candidate.id, doing):
                admission = apply_decision(candidate, decision, now)
                if admission != candidate.admission and self._snapshot_builder.satisfies_affinity(candidate, admission):
                    yield candidate, admission

    def _failed_waits(self, waits: Sequence[Defer], decided: AbstractSet[JobId]) -> Iterator[Defer]:
        """Waits for queued jobs that the scheduler failed on; running jobs need none."""
        failed = sorted(self._job_errors.jobs() - decided)
        waiting = {wait.gang for wait in waits} if failed else set()
        for job in failed:
            candidate = self._candidates.all.get(job)
            if candidate is None or candidate.is_admitted or candidate.has_invalid_spec or candidate.name in waiting:
                continue
            yield defer_failed_job(candidate.name, self._job_errors.message(job))

    def _timeouts(self, decided: dt.datetime, again: dt.datetime | None) -> Iterator[float]:
        """Seconds until each moment at which a decision is due without any change.

        A moment after `decided`, the time for which this cycle has decided, is due even if it has passed meanwhile.
        """
        now = self._clock.now()
        for at in (*([] if again is None else [again]), *self._maintenance.deadlines(decided)):
            yield max(0.0, (at - now).total_seconds())
        for pause in (self._writer.retry_after, self._informers.assumed_pods.seconds_to_next_expiry):
            if pause is not None:
                yield pause

    async def _write(self, candidate: Candidate, admission: Admission) -> None:
        with self._job_errors.isolate(candidate.id, WRITE_DECISION):
            written = await self._writer.write(candidate, admission)
            if written is None:
                return
            if written.object is not None:
                self._update_candidate(candidate.framework, candidate.job.key, written.object)
            decision_log.log_decision(candidate, admission, self._meter)
            for event in written.events:
                self._recorder.record_later(event)  # A slow event must not hold up the next cycle.

    def _may_place(self) -> bool:
        """Whether gangs are placed in this cycle. Logs each change once; affected jobs report it in their status."""
        placed_before, self._placed_gangs = self._placed_gangs, self._informers.can_place_pods
        if placed_before and not self._placed_gangs:
            why = "only some namespaces are watched" if self._informers.settings.namespaces else "nodes are forbidden"
            log.warning("placement is left to kube-scheduler: no gangs, no queue", why=why)
        elif self._placed_gangs and not placed_before:
            log.info("Tarragon places pods again; jobs left to kube-scheduler stay with it")
        return self._placed_gangs

    def _job_changed(self, kind: str, key: Key, _: CustomObject | None, new: CustomObject | None) -> None:
        if new is None:
            self._informers.first_decisions.forget((kind, key))
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
            if read_count % READS_PER_YIELD == 0:
                await self._clock.sleep(0)

    def _read(self, framework: Framework, key: Key, new: CustomObject | None) -> None:
        if new is not None and recorded_generation(new) is None:
            self._considered.append(((framework.kind, key), new.metadata.uid))
        else:
            self._informers.first_decisions.forget((framework.kind, key))
        previous = self._candidates.all.get((framework.kind, key))
        if previous is not None and new == previous.object:
            return  # The event of our own write, which was applied when it was written.
        if new is None or previous is None or not self._writer.is_stale_event(new, previous):
            self._update_candidate(framework, key, new)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        if scheduling_traits(old) != scheduling_traits(new):
            self._candidates.node_changed(key.name)
            self._snapshot_builder.nodes_changed(self._candidates.jobs_on(key.name))

    def _update_candidate(self, framework: Framework, key: Key, new: CustomObject | None) -> None:
        """Update the candidate from the job's new state. If that fails, the old candidate keeps its assignments."""
        job = framework.kind, key
        is_read = False
        with self._job_errors.isolate(job, "read it"):
            candidate = None if new is None else self._candidate(framework, new)
            self._snapshot_builder.job_changed(job)
            if candidate is None:
                self._candidates.drop(job)
                self._verifier.drop(job)
                self._writer.forget(job)
                self._job_errors.forget(job)
                if new is None:
                    self._informers.accepted_admissions.forget(job)
                else:
                    self._informers.accepted_admissions.accept_undecided(job, new)
            else:
                self._candidates.put(self._verifier.with_accepted_admission(candidate))
            is_read = True
        previous = self._candidates.all.get(job)
        if not is_read and previous is not None and new is not None and previous.job.uid == new.metadata.uid:
            # Later writes to the job must be conditional on its current resource version.
            self._candidates.put(replace(previous, object=new))
            self._informers.accepted_admissions.accept_undecided(job, new)

    def _is_new_candidate(self, framework: Framework, found: CustomObject, status: JobStatus) -> bool:
        """Whether the job's first status may be written with its admission. Others are first marked, or left alone."""
        if recorded_generation(found) is not None or status.phase.is_final:
            return False
        observed = self._informers.observe(framework.kind, found.metadata.key)
        return observed is not None and needs_no_mark(framework, replace(observed, object=found))

    def _candidate(self, framework: Framework, found: CustomObject) -> Candidate | None:
        status = recorded_status(found)
        if not (is_candidate(found, status) or self._is_new_candidate(framework, found, status)):
            self._snapshot_builder.job_finished(found.metadata.uid, status)
            return None
        taken = self._informers.decode_cache.decoded(framework.kind, found)
        return candidate_from(framework, found, taken, status, self._informers.settings)
