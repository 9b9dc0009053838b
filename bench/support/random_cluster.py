"""A random large cluster: nodes of several models in racks and zones, and gangs of hundreds of shapes."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tarragon.base.resources import (
    CPU,
    GPU_MEMORY,
    MEMORY,
    NVIDIA_GPU,
    PODS,
    Resources,
    add_resources,
    subtract,
    vgpu_memory,
    vgpu_share,
)
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import Replica
from tarragon.job.places import node_of
from tarragon.scheduling.api.decision import Admit, Decision, Evict, Resize
from tarragon.scheduling.api.gpu_shares import VgpuShare
from tarragon.scheduling.api.rules import SchedulingRules
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.placement.fit import assign
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import NodeLedger

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
GIBI = 2**30 * 1000
MODELS = (
    ("cpu", 8, {CPU: 64000, MEMORY: 256 * GIBI, PODS: 110000}),
    ("a100", 6, {CPU: 96000, MEMORY: 1024 * GIBI, PODS: 110000, NVIDIA_GPU: 8000}),
    ("t4", 4, {CPU: 32000, MEMORY: 128 * GIBI, PODS: 110000, NVIDIA_GPU: 4000}),
    ("v100", 2, {CPU: 64000, MEMORY: 512 * GIBI, PODS: 110000, NVIDIA_GPU: 8000}),
)
"""The name of a model, its share of twenty nodes, and the capacity of a node."""
RACK, ZONE = 20, 500
QUEUES = 12
SIZES = (1, 1, 2, 4, 4, 6, 8, 8, 12, 16, 16, 24, 32, 48, 64)
PARTS = (100, 200, 250, 300, 400, 500, 500, 600, 800)
"""Parts of a GPU, in thousandths."""
FULL = 200
"""The cluster counts as full when so many gangs in sequence do not fit."""


def nodes_of(count: int, *, are_gpus_shared: bool = False) -> list[NodeState]:
    kinds = [(name, amounts) for name, share, amounts in MODELS for _ in range(share)]
    states = []
    for number in range(count):
        model, amounts = kinds[number * 7 % len(kinds)]
        where = (f"zone-{number // ZONE}", f"rack-{number // RACK}")
        capacity = {**amounts, **_vgpus(amounts)} if are_gpus_shared else amounts
        states.append(NodeState(name=f"{number:05}-{model}", capacity=capacity, free=capacity, topology=where))
    return states


def _vgpus(amounts: Resources) -> Resources:
    numbers = range(amounts.get(NVIDIA_GPU, 0) // 1000)
    none = {name(number): 0 for name in (vgpu_share, vgpu_memory) for number in numbers}
    return {GPU_MEMORY: 16 * GIBI, **none} if numbers else {}


class Shapes:
    """The demands of jobs: few templates in many sizes. Equal gangs share the same objects. So large a part of the
    gangs with GPUs needs parts of them.
    """

    def __init__(
        self, states: Sequence[NodeState], chance: random.Random, count: int = 600, sharing: float = 0.0
    ) -> None:
        self._sharing = sharing
        names = [state.name for state in states]
        accelerated = frozenset(name for name in names if not name.endswith("cpu"))
        self._everywhere = frozenset(names)
        self._on = [accelerated, accelerated, *(frozenset(n for n in names if n.endswith(m)) for m, _, _ in MODELS[1:])]
        self.shapes = [self._shape(chance) for _ in range(count)]

    def _shape(self, chance: random.Random) -> Sequence[Demand]:
        """A random shape. A third of them is elastic, a seventh needs no GPUs."""
        size = chance.choice(SIZES)
        gpus = chance.choice([0, 1, 1, 1, 2, 4, 8])
        cpu, memory = chance.choice([1, 2, 4, 8]) * 1000, chance.choice([4, 8, 16, 32]) * GIBI
        each = {CPU: cpu, MEMORY: memory, PODS: 1000} | ({NVIDIA_GPU: gpus * 1000} if gpus else {})
        share = None
        if gpus and self._sharing and chance.random() < self._sharing:
            share = VgpuShare(chance.choice(PARTS), chance.choice([None, 2 * GIBI, 4 * GIBI]))
            each[NVIDIA_GPU] = share.request
        least = max(1, size // chance.choice([2, 4])) if chance.random() < 0.33 else size
        workers = Demand(
            type=WORKER,
            resources=each,
            minimum=least,
            requested=size,
            maximum=2 * size if least < size else 0,
            eligible_nodes=chance.choice(self._on) if gpus else self._everywhere,
            share=share,
        )
        servers = chance.choice([0, 0, 1, 1, 2, 4]) if size > 1 else 0
        if not servers:
            return [workers]
        small = {CPU: chance.choice([1, 2, 4]) * 1000, MEMORY: 8 * GIBI, PODS: 1000}
        return [
            Demand(
                type=PS,
                is_anchor=True,
                resources=small,
                minimum=servers,
                requested=servers,
                eligible_nodes=self._everywhere,
            ),
            workers,
        ]


@dataclass(slots=True, kw_only=True)
class RandomCluster:
    """The state of the cluster between cycles: decisions are applied, gangs finish, and others are submitted."""

    chance: random.Random
    shapes: Shapes
    inventory: Inventory
    rules: SchedulingRules = field(default_factory=SchedulingRules)
    now: dt.datetime = NOON
    waiting: dict[str, WaitingGang] = field(default_factory=dict)
    running: dict[str, RunningGang] = field(default_factory=dict)
    made: int = 0

    @classmethod
    def of(cls, nodes: int, waiting: int, running: int, seed: int, sharing: float = 0.0) -> RandomCluster:
        chance = random.Random(seed)
        states = nodes_of(nodes, are_gpus_shared=sharing > 0)
        crowd = cls(chance=chance, shapes=Shapes(states, chance, sharing=sharing), inventory=Inventory.of(states))
        ledger = NodeLedger.of_free(crowd.inventory)
        failures = 0
        while len(crowd.running) < running and failures < FULL:
            gang = crowd.submit()
            found = assign(gang.demands, ledger)
            failures = 0 if found is not None else failures + 1
            if found is not None:
                crowd.admit(gang, found)
        crowd.waiting.clear()
        crowd._settle({})
        left = {state.name: crowd.left_by_others(state.free) for state in crowd.inventory}
        crowd.inventory = crowd.inventory.with_states(crowd.states(left))
        for _ in range(waiting):
            crowd.submit(ago=chance.uniform(0, 86400))
        return crowd

    def left_by_others(self, free: Resources) -> Resources:
        """What is left by pods of no gang, which fill most of the cluster. They share no GPUs."""
        shared = sum(amount < 0 and not name.endswith("/memory") for name, amount in free.items()) * 1000
        left = {name: self.others_leave(amount) if amount > 0 else amount for name, amount in sorted(free.items())}
        if free.get(NVIDIA_GPU):
            left[NVIDIA_GPU] = max(left[NVIDIA_GPU] // 1000 * 1000, shared)
        return left

    def others_leave(self, amount: int) -> int:
        """The amount that is left by pods of no gang."""
        return amount // 1000 * self.chance.choice([0, 0, 0, 0, 0, 0, 0, 250, 500, 1000])

    def submit(self, ago: float = 0.0) -> WaitingGang:
        self.made += 1
        name = f"ns-{self.made % QUEUES}/job-{self.made:07}"
        gang = WaitingGang(
            name=name,
            queued_at=self.now - dt.timedelta(seconds=ago),
            demands=self.chance.choice(self.shapes.shapes),
            priority=self.chance.choice([0] * 18 + [10, 100]),
            queue=f"ns-{self.made % QUEUES}",
        )
        self.waiting[name] = gang
        return gang

    def admit(self, gang: WaitingGang, nodes: Mapping[Replica, str]) -> None:
        self.waiting.pop(gang.name)
        elastic = any(demand.minimum < demand.requested for demand in gang.demands)
        wished = {demand.type: demand.requested for demand in gang.demands}
        self.running[gang.name] = RunningGang(
            name=gang.name,
            demands=gang.demands,
            nodes=nodes,
            is_elastic=elastic,
            priority=gang.priority,
            queue=gang.queue,
            admitted_at=self.now,
            last_requested=wished,
        )

    def snapshot(self) -> Snapshot:
        return Snapshot(
            now=self.now,
            nodes=self.inventory,
            waiting=tuple(self.waiting.values()),
            running=tuple(self.running.values()),
            rules=self.rules,
        )

    def advance(self, decisions: Sequence[Decision], ending: int, coming: int, seconds: float) -> None:
        """Apply the decisions; then `ending` gangs finish and `coming` gangs are submitted."""
        before = dict(self.running)
        for decision in decisions:
            match decision:
                case Admit():
                    self.admit(self.waiting[decision.gang], decision.nodes)
                case Resize():
                    gang = self.running[decision.gang]
                    self.running[decision.gang] = replace(gang, nodes=decision.nodes, resized_at=self.now)
                case Evict():
                    gang = self.running.pop(decision.gang)
                    self.waiting[gang.name] = WaitingGang(
                        name=gang.name,
                        queued_at=self.now,
                        demands=gang.demands,
                        priority=gang.priority,
                        queue=gang.queue,
                    )
                case _:
                    pass
        for name in self.chance.sample(sorted(self.running), min(ending, len(self.running))):
            del self.running[name]
        self._settle(before)
        self.now += dt.timedelta(seconds=seconds)
        for _ in range(coming):
            self.submit()

    def _settle(self, before: Mapping[str, RunningGang]) -> None:
        """Update the free resources of nodes whose gangs have changed."""
        free: dict[str, Resources] = {}
        for name in before.keys() | self.running.keys():
            old, new = before.get(name), self.running.get(name)
            if old is not new:
                for gang, sign in ((old, 1), (new, -1)):
                    if gang is not None:
                        self._add(gang, sign, free)
        if free:
            self.inventory = self.inventory.with_states(self.states(free))

    def _add(self, gang: RunningGang, sign: int, free: dict[str, Resources]) -> None:
        for place, amounts, number in self.inventory.held_by(gang.demands, gang.nodes):
            node = node_of(place)
            current = free.get(node) or self.inventory.states[self.inventory.row_of[node]].free
            held = {name: amount * number for name, amount in amounts.items()}
            free[node] = add_resources([current, held]) if sign > 0 else subtract(current, held)

    def states(self, free: Mapping[str, Resources]) -> list[NodeState]:
        states, row_of = self.inventory.states, self.inventory.row_of
        return [replace(states[row_of[name]], free=dict(amounts)) for name, amounts in free.items()]
