"""Schedules with the operator's own policies: the snapshot, the policy, and the validation of what it decides."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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


class Knowledge:
    """What the operator would know of the jobs: the service that they received, and, unless they report nothing, their
    progress.
    """

    def __init__(self, *, is_progress_reported: bool) -> None:
        self._is_reported = is_progress_reported
        self._records: dict[str, WorkRecord] = {}
        self._kinds: dict[str, KindHistory] = {}

    def observe(self, active: ActiveJob, seconds: float, part: float) -> None:
        """Record that the job has worked for these seconds and done this part of its work."""
        name, record = active.job.name, self._record(active)
        if not self._is_reported:
            self._records[name] = record.observed(active.size, seconds)
            return
        seen = replace(record.observed(active.size, seconds, part), done=1 - active.remaining, total=1.0)
        self._records[name] = with_claim(seen, _prior(active))
        self._kind(active).record(name, self._records[name])

    def finish(self, active: ActiveJob) -> None:
        self._kind(active).finish(active.job.name, self._record(active).service(_prior(active)))
        self._records.pop(active.job.name, None)

    def estimate(self, active: ActiveJob) -> WorkEstimate:
        return estimate_work(self._record(active), self._kind(active), _prior(active))

    def _record(self, active: ActiveJob) -> WorkRecord:
        return self._records.get(active.job.name) or WorkRecord()

    def _kind(self, active: ActiveJob) -> KindHistory:
        return self._kinds.setdefault(active.job.kind, KindHistory())


@dataclass(slots=True, eq=False)
class PolicyScheduler:
    """Asks a policy of the operator. Its answers are validated as the operator does; a violation is an error here."""

    policy: Policy
    cluster: SimulatedCluster
    knowledge: Knowledge
    rules: SchedulingRules = field(default_factory=SchedulingRules)
    _memory: Memory = field(default_factory=Memory)
    _nodes: dict[str, Mapping[Replica, str]] = field(default_factory=dict)
    """The node of each replica, by job."""
    _demands: dict[tuple[int, int, int], Sequence[Demand]] = field(default_factory=dict)
    _inventory: Inventory = field(init=False)
    _free: dict[str, int] = field(init=False)
    """What is free by the inventory."""

    def __post_init__(self) -> None:
        self._free = dict.fromkeys(self.cluster.names, self.cluster.devices_per_node)
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
        self.knowledge.finish(active)

    def _applied(self, decision: GangDecision) -> Placement:
        nodes = decision.nodes if isinstance(decision, Admit | Resize) else {}
        self._nodes[decision.gang] = nodes
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
        changed = [name for name, count in free.items() if self._free[name] != count]
        self._free.update(free)
        self._inventory = self._inventory.with_states([self._state(name) for name in changed])

    def _state(self, name: str) -> NodeState:
        capacity = {NVIDIA_GPU: self.cluster.devices_per_node * _WHOLE}
        return NodeState(name=name, capacity=capacity, free={NVIDIA_GPU: self._free[name] * _WHOLE})

    def _waiting(self, active: ActiveJob) -> WaitingGang:
        return WaitingGang(
            name=active.job.name,
            queued_at=_moment(active.job.submitted_at),
            demands=self._demands_of(active),
            queue=active.job.queue,
            work=self.knowledge.estimate(active),
        )

    def _running(self, active: ActiveJob) -> RunningGang:
        return RunningGang(
            name=active.job.name,
            demands=self._demands_of(active),
            nodes=self._nodes[active.job.name],
            is_elastic=active.job.is_elastic,
            queue=active.job.queue,
            queued_at=_moment(active.job.submitted_at),
            admitted_at=_moment(active.admitted_at),
            resized_at=None if active.resized_at is None else _moment(active.resized_at),
            last_requested={WORKER: active.job.requested},
            work=self.knowledge.estimate(active),
        )

    def _demands_of(self, active: ActiveJob) -> Sequence[Demand]:
        job = active.job
        key = job.minimum, job.requested, job.maximum
        if key not in self._demands:
            self._demands[key] = (
                Demand(
                    type=WORKER,
                    resources={NVIDIA_GPU: _WHOLE},
                    minimum=job.minimum,
                    requested=job.requested,
                    maximum=job.maximum,
                    eligible_nodes=frozenset(self._free),
                ),
            )
        return self._demands[key]


def _prior(active: ActiveJob) -> SpeedupPrior:
    return SpeedupPrior(active.job.requested)


def _moment(seconds: float) -> dt.datetime:
    return EPOCH + dt.timedelta(seconds=seconds)
