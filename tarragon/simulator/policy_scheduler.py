"""Schedules with the operator's own policies: the snapshot, the policy, and the validation of what it decides."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Protocol

from tarragon.base.resources import NVIDIA_GPU
from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.api.decision import Admit, Defer, GangDecision, Resize
from tarragon.scheduling.api.rules import SchedulingRules
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.api.work import SpeedupPrior, WorkEstimate
from tarragon.scheduling.cycle.decision_validation import validate_decisions
from tarragon.scheduling.estimates.estimate import estimate_work, with_claim
from tarragon.scheduling.estimates.kind_history import KindHistory
from tarragon.scheduling.estimates.work_record import WorkRecord
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.memory import Memory, Policy
from tarragon.simulator.engine import ActiveJob, ClusterView, Placement, Plan, SimulatedCluster

WORKER = ReplicaType("Worker")
EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
"""The start of the virtual time. Policies decide by differences of times only."""
_WHOLE = 1000
"""Amounts are in thousandths."""
NEWS = 0.05
"""Something is recorded of a job when it has run for this much longer, or has this much less to do. Renewing
estimates at each event took a third of a simulation. Means differ by about 1 % with another value, in either direction.
"""


class Knowledge(Protocol):
    """What is known of the work of jobs."""

    def observe(self, active: ActiveJob, seconds: float, part: float) -> None:
        """Record that the job has worked for these seconds and done this part of its work."""
        ...

    def finish(self, active: ActiveJob) -> None: ...

    def estimate(self, active: ActiveJob) -> WorkEstimate | None: ...


class Observations:
    """What the operator would know of the jobs: the service that they received, and, unless they report nothing, their
    progress.
    """

    def __init__(self, *, is_progress_reported: bool) -> None:
        self._is_reported = is_progress_reported
        self._records: dict[str, WorkRecord] = {}
        self._unrecorded: dict[str, _Interval] = {}
        self._kinds: defaultdict[str, KindHistory] = defaultdict(KindHistory)
        self._estimates: dict[str, tuple[WorkRecord, int, WorkEstimate]] = {}
        """By job, the last estimate, with the record and the revision of the kind from which it was made."""

    def observe(self, active: ActiveJob, seconds: float, part: float) -> None:
        name = active.job.name
        interval = self._unrecorded.get(name)
        if interval is None:
            interval = self._unrecorded[name] = _Interval(active.size)
        elif interval.size != active.size:
            self._record_interval(active, interval)
        interval.seconds += seconds
        interval.part += part
        if interval.seconds >= interval.enough_seconds or interval.part >= NEWS * active.remaining:
            self._record_interval(active, interval)

    def finish(self, active: ActiveJob) -> None:
        name, prior = active.job.name, _prior(active.job.requested, active.job.devices)
        if name in self._unrecorded:
            self._record_interval(active, self._unrecorded.pop(name))
        self._kinds[active.job.kind].finish(name, self._record(active).service(prior))
        self._records.pop(name, None)
        self._estimates.pop(name, None)

    def estimate(self, active: ActiveJob) -> WorkEstimate:
        """Return the estimate; the same object as long as nothing is learned."""
        record, kind = self._record(active), self._kinds[active.job.kind]
        known = self._estimates.get(active.job.name)
        if known is None or known[0] is not record or known[1] != kind.revision:
            found = estimate_work(record, kind, _prior(active.job.requested, active.job.devices))
            if known is not None and known[2] == found:
                found = known[2]
            known = self._estimates[active.job.name] = record, kind.revision, found
        return known[2]

    def _record_interval(self, active: ActiveJob, interval: _Interval) -> None:
        name, record = active.job.name, self._record(active)
        if self._is_reported:
            seen = WorkRecord(
                sizes=record.sizes_with(interval.size, interval.seconds, interval.part),
                done=1 - active.remaining,
                total=1.0,
                believed_until=record.believed_until,
            )
            self._records[name] = with_claim(seen, _prior(active.job.requested, active.job.devices))
            self._kinds[active.job.kind].record(name, self._records[name])
        else:
            self._records[name] = record.observed(interval.size, interval.seconds)
        interval.restart(active.size, self._records[name])

    def _record(self, active: ActiveJob) -> WorkRecord:
        return self._records.get(active.job.name, _NOTHING_OBSERVED)


@dataclass(slots=True, eq=False)
class _Interval:
    """What a job has done at one size since its record was last written."""

    size: int
    seconds: float = 0.0
    part: float = 0.0
    enough_seconds: float = 0.0
    """The length at which it is recorded."""

    def restart(self, size: int, record: WorkRecord) -> None:
        self.size, self.seconds, self.part = size, 0.0, 0.0
        self.enough_seconds = NEWS * sum(each.seconds for each in record.sizes.values())


class NothingKnown:
    """For policies that do not look at the work of gangs. Estimates would take longer than their decisions."""

    def observe(self, active: ActiveJob, seconds: float, part: float) -> None:
        """Nothing is recorded."""

    def finish(self, active: ActiveJob) -> None:
        """Nothing is recorded."""

    def estimate(self, active: ActiveJob) -> None:  # noqa: ARG002 - as of all knowledge
        return None


@dataclass(slots=True, eq=False)
class PolicyScheduler:
    """Asks a policy of the operator. Its answers are validated as the operator does; a violation is an error here."""

    policy: Policy
    cluster: SimulatedCluster
    knowledge: Knowledge
    rules: SchedulingRules = field(default_factory=SchedulingRules)
    resizes_by_restart: bool = False
    _memory: Memory = field(default_factory=Memory)
    _nodes: dict[str, Mapping[Replica, str]] = field(default_factory=dict)
    """The node of each replica, by job."""
    _demands: dict[tuple[int, int, int, int], Sequence[Demand]] = field(default_factory=dict)
    _gangs: dict[str, WaitingGang | RunningGang] = field(default_factory=dict)
    """The gangs of the last snapshot. A gang that has not changed stays the same object, as for the operator."""
    _inventory: Inventory = field(init=False)
    _free: dict[str, int] = field(init=False)
    """What is free by the inventory."""

    def __post_init__(self) -> None:
        self._free = dict(self.cluster.capacities)
        self._inventory = Inventory.of([self._state(name) for name in self._free])

    def decide(self, view: ClusterView) -> Plan:
        snapshot = self._snapshot(view)
        checked = validate_decisions(snapshot, self.policy(snapshot, self._memory))
        if checked.violations:
            violation = checked.violations[0]
            raise ValueError(f"{violation.decision.gang} at {view.now:.0f} s: {violation.reason}")
        wake_at = math.inf if checked.requeue_at is None else (checked.requeue_at - EPOCH).total_seconds()
        changes = [decision for decision in checked.accepted if not isinstance(decision, Defer)]
        return Plan({decision.gang: self._applied(decision) for decision in changes}, wake_at)

    def progressed(self, active: ActiveJob, seconds: float, part: float) -> None:
        self.knowledge.observe(active, seconds, part)

    def ended(self, active: ActiveJob) -> None:
        self._nodes.pop(active.job.name, None)
        self._gangs.pop(active.job.name, None)
        self.knowledge.finish(active)

    def _applied(self, decision: GangDecision) -> Placement:
        nodes = decision.nodes if isinstance(decision, Admit | Resize) else {}
        self._nodes[decision.gang] = nodes
        self._gangs.pop(decision.gang, None)
        return Counter(nodes.values())

    def _snapshot(self, view: ClusterView) -> Snapshot:
        self._update_inventory(view.free)
        return Snapshot(
            now=_moment(view.now),
            nodes=self._inventory,
            waiting=[self._waiting(active) for active in view.jobs.values() if not active.placement],
            running=[self._running(active) for active in view.jobs.values() if active.placement],
            rules=self.rules,
        )

    def _update_inventory(self, free: Mapping[str, int]) -> None:
        if free == self._free:
            return
        changed = [name for name, count in free.items() if self._free[name] != count]
        self._free.update(free)
        self._inventory = self._inventory.with_states([self._state(name) for name in changed])

    def _state(self, name: str) -> NodeState:
        capacity = {NVIDIA_GPU: self.cluster.capacities[name] * _WHOLE}
        return NodeState(name=name, capacity=capacity, free={NVIDIA_GPU: self._free[name] * _WHOLE})

    def _waiting(self, active: ActiveJob) -> WaitingGang:
        work = self.knowledge.estimate(active)
        gang = self._gangs.get(active.job.name)
        if not isinstance(gang, WaitingGang):
            gang = WaitingGang(
                name=active.job.name,
                queued_at=_moment(active.job.submitted_at),
                demands=self._demands_of(active),
                queue=active.job.queue,
                work=work,
            )
        elif gang.work is not work:
            gang = replace(gang, work=work)
        self._gangs[active.job.name] = gang
        return gang

    def _running(self, active: ActiveJob) -> RunningGang:
        work = self.knowledge.estimate(active)
        gang = self._gangs.get(active.job.name)
        if not isinstance(gang, RunningGang):
            gang = self._gangs[active.job.name] = self._new_running(active, work)
        elif gang.work is not work:
            # What `dataclasses.replace` does, in a third of the time: this is made for each gang in each round.
            gang = self._gangs[active.job.name] = RunningGang(
                name=gang.name,
                demands=gang.demands,
                nodes=gang.nodes,
                is_elastic=gang.is_elastic,
                resizes_by_restart=gang.resizes_by_restart,
                queue=gang.queue,
                queued_at=gang.queued_at,
                admitted_at=gang.admitted_at,
                resized_at=gang.resized_at,
                last_requested=gang.last_requested,
                work=work,
            )
        return gang

    def _new_running(self, active: ActiveJob, work: WorkEstimate | None) -> RunningGang:
        return RunningGang(
            name=active.job.name,
            demands=self._demands_of(active),
            nodes=self._nodes[active.job.name],
            is_elastic=active.job.is_elastic,
            resizes_by_restart=self.resizes_by_restart,
            queue=active.job.queue,
            queued_at=_moment(active.job.submitted_at),
            admitted_at=_moment(active.admitted_at),
            resized_at=None if active.resized_at is None else _moment(active.resized_at),
            last_requested={WORKER: active.job.requested},
            work=work,
        )

    def _demands_of(self, active: ActiveJob) -> Sequence[Demand]:
        job = active.job
        key = job.minimum, job.requested, job.maximum, job.devices
        if key not in self._demands:
            self._demands[key] = (
                Demand(
                    type=WORKER,
                    resources={NVIDIA_GPU: job.devices * _WHOLE},
                    minimum=job.minimum,
                    requested=job.requested,
                    maximum=job.maximum,
                    eligible_nodes=frozenset(self._free),
                ),
            )
        return self._demands[key]


_NOTHING_OBSERVED = WorkRecord()


@cache
def _prior(requested: int, devices: int) -> SpeedupPrior:
    return SpeedupPrior(requested, float(devices))


def _moment(seconds: float) -> dt.datetime:
    return EPOCH + dt.timedelta(seconds=seconds)
