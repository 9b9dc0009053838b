"""Validates a policy's decisions against the snapshot that they were made on: a policy may be new, or wrong.

Decisions are checked for what must never happen: an oversold node, a gang in part, a size out of its bounds.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import assert_never

from tarragon.base.resources import GPU_MEMORY, NVIDIA_GPU, Resources, fits, vgpu_memory, vgpu_share
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.places import node_of, vgpu_of
from tarragon.scheduling.api.decision import Admit, Decision, Defer, Evict, GangDecision, RequeueAt, Resize
from tarragon.scheduling.api.gpu_shares import HELD_BY_ANCHOR, ONE_GPU, VgpuShare, claims_of, users_of
from tarragon.scheduling.api.snapshot import Demand, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.state.inventory import Inventory


@dataclass(frozen=True, slots=True)
class Violation:
    """A decision that must not be applied, and why."""

    decision: GangDecision
    reason: str


@dataclass(frozen=True, slots=True)
class ValidatedDecisions:
    accepted: Sequence[GangDecision] = ()
    violations: Sequence[Violation] = ()
    requeue_at: dt.datetime | None = None
    """When the next cycle has to run even if nothing changes until then."""


def validate_decisions(snapshot: Snapshot, decisions: Sequence[Decision]) -> ValidatedDecisions:
    """Validate the decisions in order. What a rejected decision would have taken is free for the next ones."""
    remaining = _Remaining(snapshot)
    sound: list[GangDecision] = []
    violations: list[Violation] = []
    deadlines: list[dt.datetime] = []
    undecided = remaining.undecided
    for decision in decisions:
        # Nearly all decisions are waits of waiting gangs, up to ten thousand of them.
        if isinstance(decision, Defer) and decision.gang in undecided:
            undecided.remove(decision.gang)
            sound.append(decision)
        elif isinstance(decision, RequeueAt):
            deadlines.append(decision.at)
        else:
            fault = next(remaining.faults(decision), None)
            if fault is None:
                sound.append(decision)
            else:
                violations.append(Violation(decision, fault))
    return ValidatedDecisions(sound, violations, min(deadlines, default=None))


class _Remaining:
    """What is left after the decisions that were accepted."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._waiting = {gang.name: gang for gang in snapshot.waiting}
        self._running = {gang.name: gang for gang in snapshot.running}
        self._nodes = snapshot.nodes
        self._free: dict[str, dict[str, int]] = {}
        """What is left, by node and resource, on nodes that were looked at."""
        self.undecided = set(self._waiting)
        """Waiting gangs without a decision. A caller that accepts a decision without `faults` removes its gang."""
        self._decided: set[str] = set()
        """All other gangs with a decision."""

    @cached_property
    def _inventory(self) -> Inventory:
        """Made for the first assignment: in most cycles there is none."""
        return Inventory.of(self._nodes)

    def _free_on(self, node: str) -> dict[str, int]:
        """What is left on a node. Counted apart from the policies' ledgers, which may be wrong as well."""
        if node not in self._free:
            state = self._inventory.states[self._inventory.row_of[node]]
            self._free[node] = {**state.free, GPU_MEMORY: state.capacity.get(GPU_MEMORY, 0)}
        return self._free[node]

    def faults(self, decision: GangDecision) -> Iterator[str]:
        """Yield the faults of a decision; after none, the decision counts."""
        if decision.gang in self._decided or (decision.gang in self._waiting and decision.gang not in self.undecided):
            yield "there is already a decision about it"
        match decision:
            case Defer(name):
                if name not in self._waiting and name not in self._running:
                    yield "there is no such gang"
            case Evict(name):
                if name not in self._running:
                    yield "it is not running"
            case Admit(name, nodes):
                yield from self._place_faults(self._waiting.get(name), nodes)
            case Resize(name, nodes):
                yield from self._resize_faults(self._running.get(name), nodes)
            case _:
                assert_never(decision)
        self.undecided.discard(decision.gang)
        self._decided.add(decision.gang)

    def _place_faults(self, gang: WaitingGang | None, nodes: Mapping[Replica, str]) -> Iterator[str]:
        if gang is None:
            yield "it is not waiting"
            return
        counts = Counter(replica.type for replica in nodes)
        demands = {demand.type: demand for demand in gang.demands}
        for demand in gang.demands:
            count = counts[demand.type]
            if not demand.minimum <= count <= demand.upper_limit:
                yield _out_of_bounds(demand, count)
            if any(Replica(demand.type, index) not in nodes for index in range(count)):
                yield f"the indexes of its {demand.type.lower()}s have gaps"
        yield from self._assignment_faults(nodes, demands)

    def _resize_faults(self, gang: RunningGang | None, nodes: Mapping[Replica, str]) -> Iterator[str]:
        """Yield the faults of a resize. A size that was out of bounds (after an edit) may stay so, but not move further
        out.
        """
        if gang is None:
            yield "it is not running"
            return
        before = Counter(replica.type for replica in gang.nodes)
        after = Counter(replica.type for replica in nodes)
        demands = {demand.type: demand for demand in gang.demands}
        for demand in gang.demands:
            previous, count = before[demand.type], after[demand.type]
            if not min(demand.minimum, previous) <= count <= max(demand.upper_limit, previous):
                yield _out_of_bounds(demand, count)
            first = Replica(demand.type, 0)
            if demand.minimum and first in gang.nodes and first not in nodes:
                yield f"{first} must not be removed"
        added = {replica: node for replica, node in nodes.items() if gang.nodes.get(replica) != node}
        yield from self._assignment_faults(added, demands)

    def _assignment_faults(self, nodes: Mapping[Replica, str], demands: Mapping[ReplicaType, Demand]) -> Iterator[str]:
        """Take all assignments from what is left, or none if one of them is not possible."""
        taken: list[tuple[str, Resources]] = []
        for replica, place in sorted(nodes.items(), key=lambda item: -_claims(demands.get(item[0].type))):
            demand = demands.get(replica.type)
            fault = self._assignment_fault(replica, place, demand)
            if demand is None or fault is not None:
                for earlier, resources in taken:
                    self._take(earlier, resources, -1)
                yield fault or ""
                return
            amounts = self._inventory.amounts_at(place, demand)
            self._take(node_of(place), amounts, 1)
            taken.append((node_of(place), amounts))

    def _take(self, node: str, resources: Resources, times: int) -> None:
        free = self._free_on(node)
        for name, amount in resources.items():
            free[name] = free.get(name, 0) - amount * times

    def _assignment_fault(self, replica: Replica, place: str, demand: Demand | None) -> str | None:
        if demand is None:
            return f"the job has no {replica.type.lower()} replicas"
        node, number = node_of(place), vgpu_of(place)
        if place not in self._inventory.row_of:
            return f"{replica} would be on {place or 'no node'}, which is not available"
        if node not in demand.eligible_nodes:
            return f"{replica} may not run on {node}"
        free = self._free_on(node)
        if demand.share is None and number is None:
            whole = {**free, NVIDIA_GPU: free.get(NVIDIA_GPU, 0) - ONE_GPU * len(_open_vgpus(free))}
            return None if fits(demand.resources, whole) else f"{node} has no room for {replica}"
        if demand.share is None or number is None:
            return f"{replica} needs {'no' if demand.share is None else 'a'} vGPU, but would be on {place}"
        if not _has_room_on_vgpu(self._inventory.amounts_at(place, demand), free, number):
            return f"{place} has no room for {replica}"
        return None if _may_share(demand.share, free, number) else f"{replica} may not share {place} with its pods"


def _has_room_on_vgpu(amounts: Resources, free: Resources, number: int) -> bool:
    """Whether a node has room for these amounts, of which its vGPU with this number has to give some."""
    share, memory = vgpu_share(number), vgpu_memory(number)
    others = {name: amount for name, amount in amounts.items() if not name.startswith(f"{NVIDIA_GPU}/")}
    gpus = len({*_open_vgpus(free), number}) * ONE_GPU
    return (
        fits(others, free)
        and amounts[share] <= ONE_GPU * 1000 + free.get(share, 0) + HELD_BY_ANCHOR
        and amounts[memory] <= free.get(GPU_MEMORY, 0) + free.get(memory, 0)
        and gpus <= free.get(NVIDIA_GPU, 0)
    )


def _claims(demand: Demand | None) -> int:
    return 0 if demand is None else claims_of(demand.share)


def _may_share(share: VgpuShare, free: Resources, number: int) -> bool:
    """Whether the share's constraints permit those that it would share this vGPU with."""
    constraints = share.constraints

    def mark(name: str) -> int:
        return -free.get(name, 0)

    chosen = [other for other in _open_vgpus(free) if constraints.gpu_id and constraints.has_gpu_id(other, mark)]
    users = users_of(free.get(vgpu_share(number), 0))
    return bool(constraints.permit(number, users, mark)) and (not chosen or number in chosen)


def _open_vgpus(free: Resources) -> set[int]:
    """The numbers of the vGPUs of which something is held."""
    numbers = range(sum(name.startswith(f"{NVIDIA_GPU}/") for name in free))
    return {number for number in numbers if free.get(vgpu_share(number), 0) < 0}


def _out_of_bounds(demand: Demand, count: int) -> str:
    return f"{count} {demand.type.lower()}s are not between {demand.minimum} and {demand.upper_limit}"
