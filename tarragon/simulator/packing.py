"""How much of the GPUs of a cluster can be allocated to tasks that ask for whole GPUs and for parts of one.

The tasks of a trace are submitted in random order and never end; one that does not fit is dropped. This is the
experiment of FGD (Weng et al., "Beware of Fragmentation", ATC 2023), on the same trace, openb. What is allocated is
counted when the tasks submitted so far have asked for as much as the cluster has.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

from tarragon.base.errors import TarragonError
from tarragon.base.resources import (
    CPU,
    GPU_MEMORY,
    MEMORY,
    NVIDIA_GPU,
    WHOLE_GPU,
    Resources,
    subtract,
    vgpu_memory,
    vgpu_share,
)
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.places import node_of
from tarragon.scheduling.api.decision import Admit
from tarragon.scheduling.api.gpu_shares import VgpuShare
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.placement.fit import assign
from tarragon.scheduling.policies import POLICIES
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import NodeLedger
from tarragon.scheduling.state.memory import Memory
from tarragon.simulator.traces.table import Row, read_table

NODES = ("sn", "cpu_milli", "memory_mib", "gpu")
TASKS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
BEST_FIT, WHOLE_GPUS = "best-fit", "whole-gpus"
PACKING_BASELINES = (BEST_FIT, WHOLE_GPUS)
"""Where least is left over; and as Kubernetes does it, where a part of a GPU takes all of it."""
READINGS = (0.9, 0.95, 1.0, 1.1, 1.3)
"""At which demand, in parts of the cluster, the allocation is read."""
BATCH = 50
"""So many tasks are submitted at once. They are placed one after the other all the same."""
_WORKER = ReplicaType("Worker")
_BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_MIB = 2**20 * 1000


@dataclass(frozen=True, slots=True)
class PackingTrace:
    nodes: Sequence[NodeState]
    tasks: Sequence[Demand]
    """One replica each."""

    @property
    def gpus(self) -> int:
        """All GPUs, in thousandths."""
        return sum(node.capacity[NVIDIA_GPU] for node in self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """What one policy has allocated, in parts of all GPUs."""

    policy: str
    seed: int
    allocated: Mapping[float, float]
    """By demand, as in `READINGS`."""
    refused: int
    """The number of tasks that asked for GPUs and were refused until the demand was 1."""


def read_packing_trace(tasks: Path, nodes: Path) -> PackingTrace:
    """Read openb's tables of tasks and of nodes. Raises TarragonError."""
    node_table, task_table = read_table(nodes), read_table(tasks)
    for table, needed in ((node_table, NODES), (task_table, TASKS)):
        if not table.has(needed):
            missing = ", ".join(name for name in needed if name not in table.columns)
            raise TarragonError(f"can't pack {table.path}", why=f"it has no column {missing}")
    states = [_node(row) for row in node_table.rows if row.count("gpu")]
    if not states:
        raise TarragonError(f"no node of {nodes} has a GPU")
    everywhere = frozenset(state.name for state in states)
    return PackingTrace(states, [_task(row, everywhere) for row in task_table.rows])


def pack(trace: PackingTrace, policy: str, seed: int, advance: Callable[[], None] = lambda: None) -> Packing:
    """Submit the tasks in an order that depends on the seed, until the demand is that of the last reading."""
    scheduler = _Baseline(trace, policy) if policy in PACKING_BASELINES else _Policy(trace, policy)
    demanded, granted, refused = 0, 0, 0
    allocated: dict[float, float] = {}
    tasks = _in_random_order(trace.tasks, random.Random(seed))
    while len(allocated) < len(READINGS):
        batch = list(islice(tasks, BATCH))
        placed = scheduler.place(batch)
        for number, task in enumerate(batch):
            gpus = task.resources.get(NVIDIA_GPU, 0)
            demanded += gpus
            if number in placed:
                granted += gpus
            elif gpus and 1.0 not in allocated:
                refused += 1
            for reading in READINGS:
                if demanded >= reading * trace.gpus:
                    allocated.setdefault(reading, granted / trace.gpus)
            advance()
    return Packing(policy=policy, seed=seed, allocated=allocated, refused=refused)


class _Policy:
    """A policy of the operator, which is shown each batch of tasks beside all that run."""

    def __init__(self, trace: PackingTrace, policy: str) -> None:
        self._policy = POLICIES[policy]
        self._nodes = Inventory.of(trace.nodes)
        self._memory = Memory()
        self._running: list[RunningGang] = []
        self._submitted = 0

    def place(self, tasks: Sequence[Demand]) -> set[int]:
        """Return the indexes of the tasks that have been placed."""
        now = _BEGIN + dt.timedelta(seconds=self._submitted)
        names = {f"task-{self._submitted + number:07}": number for number in range(len(tasks))}
        waiting = [WaitingGang(name=name, queued_at=now, demands=[tasks[number]]) for name, number in names.items()]
        self._submitted += len(tasks)
        snapshot = Snapshot(now=now, nodes=self._nodes, waiting=waiting, running=self._running)
        admitted = {
            decision.gang: decision.nodes
            for decision in self._policy(snapshot, self._memory)
            if isinstance(decision, Admit)
        }
        for name, nodes in admitted.items():
            demands = [tasks[names[name]]]
            gang = RunningGang(name=name, demands=demands, nodes=nodes, is_elastic=False, admitted_at=now)
            self._running.append(gang)
        self._take(admitted, {name: tasks[number] for name, number in names.items()})
        return {names[name] for name in admitted}

    def _take(self, admitted: Mapping[str, Mapping[Replica, str]], tasks: Mapping[str, Demand]) -> None:
        free: dict[str, Resources] = {}
        for name, nodes in admitted.items():
            for place in nodes.values():
                node = node_of(place)
                before = free.get(node, self._nodes.states[self._nodes.row_of[node]].free)
                free[node] = subtract(before, self._nodes.amounts_at(place, tasks[name]))
        changed = (
            replace(self._nodes.states[self._nodes.row_of[node]], free=amounts) for node, amounts in free.items()
        )
        self._nodes = self._nodes.with_states(changed)


class _Baseline:
    """Places each task where least is left over."""

    def __init__(self, trace: PackingTrace, rule: str) -> None:
        self._ledger = NodeLedger.of_free(trace.nodes)
        self._is_whole = rule == WHOLE_GPUS

    def place(self, tasks: Sequence[Demand]) -> set[int]:
        wanted = [_as_whole_gpu(task) if self._is_whole else task for task in tasks]
        return {number for number, task in enumerate(wanted) if assign([task], self._ledger) is not None}


def _as_whole_gpu(task: Demand) -> Demand:
    return (
        task if task.share is None else replace(task, share=None, resources={**task.resources, NVIDIA_GPU: WHOLE_GPU})
    )


def _in_random_order(tasks: Sequence[Demand], chance: random.Random) -> Iterator[Demand]:
    """Yield the tasks shuffled, again and again."""

    def shuffles() -> Iterator[list[Demand]]:
        while True:
            yield chance.sample(tasks, len(tasks))

    return chain.from_iterable(shuffles())


def _node(row: Row) -> NodeState:
    gpus = row.count("gpu")
    none = {name(number): 0 for name in (vgpu_share, vgpu_memory) for number in range(gpus)}
    capacity = {
        CPU: row.count("cpu_milli"),
        MEMORY: row.count("memory_mib") * _MIB,
        NVIDIA_GPU: gpus * 1000,
        GPU_MEMORY: 0,
        **none,
    }
    return NodeState(name=row.text("sn") or f"line-{row.line}", capacity=capacity, free=capacity)


def _task(row: Row, everywhere: frozenset[str]) -> Demand:
    """Read a task. The trace does not say how much memory of GPUs a task needs."""
    gpus, part = row.count("num_gpu"), row.count("gpu_milli")
    is_shared = gpus == 1 and 0 < part < WHOLE_GPU
    requested = part if is_shared else gpus * 1000
    resources = {CPU: row.count("cpu_milli"), MEMORY: row.count("memory_mib") * _MIB}
    return Demand(
        type=_WORKER,
        resources={**resources, NVIDIA_GPU: requested} if requested else resources,
        minimum=1,
        requested=1,
        eligible_nodes=everywhere,
        share=VgpuShare(part, 0) if is_shared else None,
    )
