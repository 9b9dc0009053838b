"""Rounds one after the other in virtual time: a policy decides, what it decides happens, and jobs come and end.

Whatever is decided is checked as it happens: no node oversold, no gang in part, none outside its bounds, no quota
exceeded, nobody preempted for equals, one decision for each that waits.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tarragon.base.gpu_constraints import GpuConstraints, is_mark, mark_names
from tarragon.base.resources import (
    GPU_MEMORY,
    NVIDIA_GPU,
    Resources,
    add_resources,
    fits,
    subtract,
    vgpu_memory,
    vgpu_share,
)
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.places import node_of, vgpu_of
from tarragon.scheduling.api.decision import Admit, Defer, Evict, GangDecision, RequeueAt, Resize
from tarragon.scheduling.api.gpu_shares import VgpuShare
from tarragon.scheduling.api.rules import SchedulingRules
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.cycle.decision_validation import validate_decisions
from tarragon.scheduling.state.memory import Memory, Policy

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


GIB = 2**30 * 1000


def gpus(number: int) -> Resources:
    return {NVIDIA_GPU: number * 1000}


def with_share(demand: Demand, share: VgpuShare | None) -> Demand:
    """Each replica needs such a part of a GPU; the demand itself if that is none."""
    if share is None:
        return demand
    return replace(demand, share=share, resources={**demand.resources, NVIDIA_GPU: share.request})


def shared_gpus(number: int, memory: int = 16) -> Resources:
    """What a node with GPUs that may be shared has. Each has so many GiB of memory."""
    none = {name(index): 0 for name in (vgpu_share, vgpu_memory) for index in range(number)}
    return {**gpus(number), GPU_MEMORY: memory * GIB, **none}


def with_marks(capacity: Resources, anti_affinities: Iterable[str] = ()) -> Resources:
    """What the node has if there are pods with constraints on those with whom they share a GPU."""
    return {**capacity, **dict.fromkeys(mark_names(capacity[NVIDIA_GPU] // 1000, anti_affinities), 0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`length` is for how many seconds it runs in one piece; None is for ever."""

    name: str
    demands: Sequence[Demand]
    length: float | None = None
    priority: int = 0
    queue: str = "default"
    preempts: bool = True


@dataclass(slots=True, kw_only=True)
class Run:
    """A job that has been admitted."""

    job: Job
    queued: dt.datetime
    admitted: dt.datetime
    nodes: Mapping[Replica, str]
    resized: dt.datetime | None = None


@dataclass(slots=True, kw_only=True)
class Rounds:
    """`grace` is for how many seconds pods that were told to end still hold what they have."""

    policy: Policy
    nodes: Mapping[str, Resources]
    rules: SchedulingRules = field(default_factory=lambda: SchedulingRules(overdue_seconds=30))
    grace: float = 0.0
    foreign: Mapping[str, Resources] = field(default_factory=dict)
    """By node, what pods hold that belong to no gang."""
    now: dt.datetime = NOON
    waiting: dict[str, tuple[dt.datetime, Job]] = field(default_factory=dict)
    running: dict[str, Run] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    waits: dict[str, Defer] = field(default_factory=dict)
    """Of the last round."""
    _releasing: list[tuple[dt.datetime, str, Resources]] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    _again: dt.datetime | None = None

    def workers(self, wish: int, *, least: int | None = None, most: int = 0, each: Resources | None = None) -> Demand:
        """On any node; one GPU each unless told otherwise."""
        return self.demand(WORKER, wish, least=least, most=most, each=gpus(1) if each is None else each)

    def demand(
        self, kind: ReplicaType, wish: int, *, least: int | None = None, most: int = 0, each: Resources
    ) -> Demand:
        everywhere = frozenset(self.nodes)
        minimum = wish if least is None else least
        return Demand(
            type=kind,
            resources=each,
            minimum=minimum,
            requested=wish,
            maximum=most,
            eligible_nodes=everywhere,
            is_anchor=kind == PS,
        )

    def submit(self, job: Job) -> None:
        self.waiting[job.name] = self.now, job

    def end(self, name: str) -> None:
        """Its pods are done: what they held is free at once."""
        del self.running[name]
        self.ended.append(name)

    def decide(self) -> Sequence[GangDecision]:
        """One round."""
        snapshot = self.snapshot()
        decided = self.policy(snapshot, self.memory)
        violations = validate_decisions(snapshot, decided).violations
        assert not violations, violations
        about = [decision for decision in decided if not isinstance(decision, RequeueAt)]
        later = [decision.at for decision in decided if isinstance(decision, RequeueAt)]
        assert all(at > self.now for at in later), "to decide again in the past is to decide for ever"
        self._again = min(later, default=None)
        self._check_who(about)
        self.waits = {decision.gang: decision for decision in about if isinstance(decision, Defer)}
        free = {state.name: state.free for state in self.snapshot().nodes}
        held = self._held()
        for decision in about:
            match decision:
                case Admit():
                    self._place(decision, free)
                case Resize():
                    self._resize(decision, free)
                case Evict():
                    self._evict(decision)
                case Defer():
                    pass
        self._check_quotas(held)
        return about

    def advance(self, seconds: float) -> None:
        """Decide, and again whenever something has ended or a policy wants to, for so long."""
        until = self.now + dt.timedelta(seconds=seconds)
        self.decide()
        while (at := self._next()) is not None and at <= until:
            self.now = max(at, self.now)
            for name in [name for name, run in self.running.items() if _ends(run) == self.now]:
                self.end(name)
            self._releasing = [each for each in self._releasing if each[0] > self.now]
            self.decide()
        self.now = until

    def snapshot(self) -> Snapshot:
        """What a policy sees now."""
        held: dict[str, list[Resources]] = {}
        for run in self.running.values():
            for replica, place in run.nodes.items():
                held.setdefault(node_of(place), []).append(self._at(run.job, replica, place))
        leaving: dict[str, list[Resources]] = {}
        for _, node, amounts in self._releasing:
            leaving.setdefault(node, []).append(amounts)
        check_constraints(self.sharing())
        states = []
        for name, capacity in sorted(self.nodes.items()):
            releasing = add_resources(leaving.get(name, []))
            taken = add_resources([*held.get(name, []), releasing, self.foreign.get(name, {})])
            free = subtract(capacity, taken)
            check_not_oversold(name, capacity, free)
            states.append(NodeState(name=name, capacity=capacity, free=free, releasing=releasing))
        return Snapshot(
            now=self.now,
            nodes=states,
            waiting=[_gang(queued, job) for queued, job in self.waiting.values()],
            running=[_running(run) for run in self.running.values()],
            rules=self.rules,
        )

    def sharing(self) -> dict[str, list[GpuConstraints]]:
        """The constraints of the replicas that share GPUs, by place."""
        found: dict[str, list[GpuConstraints]] = {}
        for run in self.running.values():
            share_of = {demand.type: demand.share for demand in run.job.demands}
            for replica, place in run.nodes.items():
                share = share_of[replica.type]
                if share is not None:
                    found.setdefault(place, []).append(share.constraints)
        return found

    def size(self, name: str) -> int:
        """How many workers it has."""
        return sum(replica.type == WORKER for replica in self.running[name].nodes)

    def _at(self, job: Job, replica: Replica, place: str) -> Resources:
        """What a replica holds at its place."""
        demand = next(demand for demand in job.demands if demand.type == replica.type)
        number = vgpu_of(place)
        assert (number is None) == (demand.share is None)
        if demand.share is None or number is None:
            return demand.resources
        card = self.nodes[node_of(place)][GPU_MEMORY]
        memory = card * demand.share.request // 1000 if demand.share.memory is None else demand.share.memory
        share = {vgpu_share(number): demand.share.request * 1000, vgpu_memory(number): memory}
        marks = demand.share.constraints.marks(number, demand.share.request)
        return {**{name: amount for name, amount in demand.resources.items() if name != NVIDIA_GPU}, **share, **marks}

    def _take(self, free: dict[str, Resources], place: str, amounts: Resources) -> None:
        node = node_of(place)
        after = subtract(free[node], amounts)
        if vgpu_of(place) is None:
            assert fits(amounts, free[node]), f"{node} has {free[node]} left, and gives {amounts}"
        check_not_oversold(node, self.nodes[node], after)
        free[node] = after

    def _next(self) -> dt.datetime | None:
        ends = [end for run in self.running.values() if (end := _ends(run)) is not None]
        moments = [*ends, *(at for at, _, _ in self._releasing)]
        return min([*moments, *([self._again] if self._again is not None else [])], default=None)

    def _place(self, decision: Admit, free: dict[str, Resources]) -> None:
        queued, job = self.waiting.pop(decision.gang)
        _check_size(job, decision.nodes)
        _check_start(job, decision.nodes)
        for replica, node in decision.nodes.items():
            self._take(free, node, self._at(job, replica, node))
        self.running[job.name] = Run(job=job, queued=queued, admitted=self.now, nodes=decision.nodes)

    def _resize(self, decision: Resize, free: dict[str, Resources]) -> None:
        run = self.running[decision.gang]
        _check_size(run.job, decision.nodes)
        for replica, node in decision.nodes.items() - run.nodes.items():
            self._take(free, node, self._at(run.job, replica, node))
        self._release(run, [replica for replica, _ in run.nodes.items() - decision.nodes.items()])
        run.nodes, run.resized = decision.nodes, self.now

    def _evict(self, decision: Evict) -> None:
        run = self.running.pop(decision.gang)
        assert any(job.priority > run.job.priority and job.preempts for _, job in self.waiting.values()), (
            f"{decision.gang} was preempted for nobody of higher priority"
        )
        self._release(run, run.nodes.keys())
        self.waiting[run.job.name] = run.queued, run.job

    def _release(self, run: Run, replicas: Collection[Replica]) -> None:
        if self.grace:
            until = self.now + dt.timedelta(seconds=self.grace)
            self._releasing += [
                (until, node_of(run.nodes[replica]), self._at(run.job, replica, run.nodes[replica]))
                for replica in replicas
            ]
        elif replicas:
            self._again = self.now  # Their pods have ended at once, and whoever waits for that is looked at again.

    def _check_who(self, about: Sequence[GangDecision]) -> None:
        counted = Counter(decision.gang for decision in about)
        assert set(counted.values()) <= {1}, f"decided twice: {counted.most_common(1)}"
        undecided = self.waiting.keys() - counted.keys()
        assert not undecided, f"nothing was decided about {undecided}"
        assert counted.keys() <= self.waiting.keys() | self.running.keys()

    def _held(self) -> dict[str, Resources]:
        held: dict[str, list[Resources]] = {}
        for run in self.running.values():
            held.setdefault(run.job.queue, []).extend(_each(run.job, replica) for replica in run.nodes)
        return {queue: add_resources(amounts) for queue, amounts in held.items()}

    def _check_quotas(self, before: Mapping[str, Resources]) -> None:
        for queue, held in self._held().items():
            quota = self.rules.queues[queue].quota if queue in self.rules.queues else {}
            for name, limit in quota.items():
                most = max(limit, before.get(queue, {}).get(name, 0))
                assert held.get(name, 0) <= most, f"{queue} holds {held}, and may {quota}"


def _gang(queued: dt.datetime, job: Job) -> WaitingGang:
    return WaitingGang(
        name=job.name,
        queued_at=queued,
        demands=job.demands,
        priority=job.priority,
        can_preempt=job.preempts,
        queue=job.queue,
    )


def _running(run: Run) -> RunningGang:
    return RunningGang(
        name=run.job.name,
        demands=run.job.demands,
        nodes=run.nodes,
        is_elastic=any(max(each.requested, each.maximum) > each.minimum for each in run.job.demands),
        priority=run.job.priority,
        queue=run.job.queue,
        admitted_at=run.admitted,
        resized_at=run.resized,
        last_requested={each.type: each.requested for each in run.job.demands},
    )


def _ends(run: Run) -> dt.datetime | None:
    return None if run.job.length is None else run.admitted + dt.timedelta(seconds=run.job.length)


def _each(job: Job, replica: Replica) -> Resources:
    return next(demand.resources for demand in job.demands if demand.type == replica.type)


def check_not_oversold(name: str, capacity: Resources, free: Resources) -> None:
    """Of each GPU, no more than all of it is held, by one pod or by several that share it."""
    vgpus = range(capacity.get(NVIDIA_GPU, 0) // 1000)
    parts = {name(number) for name in (vgpu_share, vgpu_memory) for number in vgpus}
    whole = {resource: amount for resource, amount in free.items() if resource not in parts and not is_mark(resource)}
    assert all(amount >= 0 for amount in whole.values()), f"{name} is oversold: {free}"
    assert all(1_000_000 + free.get(vgpu_share(number), 0) >= 0 for number in vgpus), f"{name} shares too much: {free}"
    memory = capacity.get(GPU_MEMORY, 0)
    assert all(memory + free.get(vgpu_memory(number), 0) >= 0 for number in vgpus), f"{name} lacks memory: {free}"
    used = sum(free.get(vgpu_share(number), 0) < 0 for number in vgpus)
    assert used * 1000 <= free.get(NVIDIA_GPU, 0), f"{name} has given GPUs away twice: {free}"


def check_constraints(sharing: Mapping[str, Sequence[GpuConstraints]]) -> None:
    """Nobody shares a GPU with whom one of them must not."""
    gpu_of: dict[tuple[str, str], str] = {}
    for place, users in sharing.items():
        assert len({user.exclusion for user in users}) == 1, f"not all of {place} have the same exclusion: {users}"
        assert len({user.affinity for user in users} - {""}) <= 1, f"{place} has two affinities: {users}"
        assert len({user.gpu_id for user in users} - {""}) <= 1, f"{place} has two GPUIDs: {users}"
        apart = Counter(user.anti_affinity for user in users if user.anti_affinity)
        assert set(apart.values()) <= {1}, f"two with the same anti-affinity share {place}: {users}"
        for gpu_id in {user.gpu_id for user in users} - {""}:
            other = gpu_of.setdefault((node_of(place), gpu_id), place)
            assert other == place, f"both {place} and {other} are {gpu_id}"


def _check_size(job: Job, nodes: Mapping[Replica, str]) -> None:
    for demand in job.demands:
        there = [replica for replica in nodes if replica.type == demand.type]
        most = max(demand.requested, demand.maximum)
        assert demand.minimum <= len(there) <= most, f"{job.name} has {len(there)} {demand.type.lower()}s"
        assert all(node_of(nodes[replica]) in demand.eligible_nodes for replica in there)


def _check_start(job: Job, nodes: Mapping[Replica, str]) -> None:
    for demand in job.demands:
        indexes = sorted(replica.index for replica in nodes if replica.type == demand.type)
        assert indexes == list(range(len(indexes))), f"{job.name} starts with gaps: {indexes}"
        assert len(indexes) <= demand.upper_limit, f"{job.name} starts larger than it may be"
