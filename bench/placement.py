#!/usr/bin/env python3
"""The number of nodes that policies use for gangs, compared with the optimum of an integer programme (extra `bench`).

    python bench/placement.py [--instances N] [--nodes 8,16,32] [--seed N]

An instance is a cluster of nodes with 4 GPUs, some of them in use, and gangs of up to 16 workers, with sizes as in the
Pollux workload. The gangs request a part of the free GPUs and arrive together. Every method places all gangs; the
measure is the sum of the nodes of each gang. A cell shows the ratio to the optimum, and how often the two are equal.
The first columns are the operator's policies.
"""

from __future__ import annotations

import argparse
import datetime as dt
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench.support.control_plane import load  # noqa: E402
from tarragon.base.resources import NVIDIA_GPU  # noqa: E402
from tarragon.frameworks.kubeflow.fields import WORKER  # noqa: E402
from tarragon.job.model import Replica  # noqa: E402
from tarragon.scheduling.api.decision import Admit  # noqa: E402
from tarragon.scheduling.api.snapshot import Demand, NodeState, Snapshot, WaitingGang  # noqa: E402
from tarragon.scheduling.policies import POLICIES  # noqa: E402
from tarragon.scheduling.state.memory import Memory  # noqa: E402

GPUS = 4
FILLS = (0.5, 0.8, 1.0)
SIZES = {4: 301, 6: 930, 8: 875, 12: 954, 16: 690}
"""The number of jobs by requested GPUs, of the 6,400 jobs of the Pollux workloads, without single and larger ones."""
PATIENCE = 60.0
"""The time limit of the integer programme in seconds. The best solution at that time is not proved to be optimal."""
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)

Nodes = list[int]
"""The nodes of a gang, with one entry for each worker."""


@dataclass(frozen=True, slots=True)
class Instance:
    free: Sequence[int]
    """Free GPUs of each node."""
    gangs: Sequence[int]
    """The number of workers of each gang, each of which needs one GPU."""


def instance(nodes: int, fill: float, chance: random.Random) -> Instance:
    """A random instance, whose gangs request the share `fill` of the free GPUs. The last gang takes what is left."""
    while True:
        free = [chance.randint(0, GPUS) for _ in range(nodes)]
        left = round(sum(free) * fill)
        gangs: list[int] = []
        while left >= 2:
            size = chance.choices(list(SIZES), list(SIZES.values()))[0]
            gangs.append(min(size, left))
            left -= gangs[-1]
        if len(gangs) >= 2:
            chance.shuffle(gangs)
            return Instance(free, gangs)


def by_policy(name: str) -> Callable[[Instance, random.Random], Sequence[Nodes]]:
    """The placement by a policy of the operator, in one scheduling cycle in which all gangs wait in their order."""

    def placed(given: Instance, _: random.Random) -> Sequence[Nodes]:
        states = [
            NodeState(name=f"{number:03}", capacity={NVIDIA_GPU: GPUS}, free={NVIDIA_GPU: free})
            for number, free in enumerate(given.free)
        ]
        eligible = frozenset(state.name for state in states)
        waiting = [
            WaitingGang(
                name=f"{number:03}",
                queued_at=NOON,
                demands=[
                    Demand(
                        type=WORKER,
                        resources={NVIDIA_GPU: 1},
                        minimum=size,
                        requested=size,
                        eligible_nodes=eligible,
                    )
                ],
            )
            for number, size in enumerate(given.gangs)
        ]
        found: dict[str, Mapping[Replica, str]] = {}
        for decision in POLICIES[name](Snapshot(now=NOON, nodes=states, waiting=waiting), Memory()):
            if isinstance(decision, Admit):
                found[decision.gang] = decision.nodes
        return [[int(node) for node in found[gang.name].values()] for gang in waiting]

    return placed


def best_fit(given: Instance, _: random.Random) -> Sequence[Nodes]:
    """Best fit, gang by gang: the fullest node that fits all, else the emptiest node, and again for the rest."""
    free = list(given.free)
    found = []
    for size in given.gangs:
        nodes: Nodes = []
        while len(nodes) < size:
            left = size - len(nodes)
            whole = [number for number, there in enumerate(free) if there >= left]
            chosen = min(whole, key=lambda number: free[number]) if whole else free.index(max(free))
            taken = min(left, free[chosen])
            free[chosen] -= taken
            nodes += [chosen] * taken
        found.append(nodes)
    return found


def kube_spread(given: Instance, chance: random.Random) -> Sequence[Nodes]:
    """The default of kube-scheduler: each pod goes to the node with the most free GPUs, a random one of equals."""
    free = list(given.free)
    found = []
    for size in given.gangs:
        nodes: Nodes = []
        for _ in range(size):
            most = max(free)
            chosen = chance.choice([number for number, there in enumerate(free) if there == most])
            free[chosen] -= 1
            nodes.append(chosen)
        found.append(nodes)
    return found


def dragon(given: Instance, chance: random.Random) -> Sequence[Nodes]:
    """DRAGON's code: the first node in random order that fits all; else the one that fits most, then random ones."""
    free = list(given.free)
    found = []
    for size in given.gangs:
        order = chance.sample(range(len(free)), len(free))
        whole = next((number for number in order if free[number] >= size), None)
        if whole is not None:
            walked = [whole]
        else:
            first = max(order, key=lambda number: min(free[number], size))
            walked = [first, *(number for number in chance.sample(order, len(order)) if number != first)]
        nodes: Nodes = []
        for number in walked:
            taken = min(free[number], size - len(nodes))
            free[number] -= taken
            nodes += [number] * taken
        found.append(nodes)
    return found


def optimum(given: Instance) -> tuple[int, bool]:
    """The least number of nodes, and whether it is proved optimal. Solved by HiGHS with gangs x nodes variables."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    gangs, nodes = len(given.gangs), len(given.free)
    pairs = gangs * nodes
    most = np.array([min(size, free) for size in given.gangs for free in given.free])
    each, of_gang = np.arange(pairs), np.arange(pairs) // nodes
    of_node = np.arange(pairs) % nodes
    ones = np.ones(pairs)
    amounts = csr_array((ones, (of_gang, each)), (gangs, 2 * pairs))
    room = csr_array((ones, (of_node, each)), (nodes, 2 * pairs))
    linked = csr_array(
        (np.concatenate([ones, -most]), (np.concatenate([each, each]), np.concatenate([each, each + pairs]))),
        (pairs, 2 * pairs),
    )
    opened = csr_array((most, (of_gang, each + pairs)), (gangs, 2 * pairs))
    found = milp(
        np.concatenate([np.zeros(pairs), ones]),
        integrality=np.concatenate([np.zeros(pairs), ones]),
        bounds=Bounds(0, np.concatenate([most, np.minimum(most, 1)])),
        constraints=[
            LinearConstraint(amounts, given.gangs, given.gangs),
            LinearConstraint(room, 0, given.free),
            LinearConstraint(linked, -np.inf, 0),
            LinearConstraint(opened, given.gangs, np.inf),
        ],
        options={"time_limit": PATIENCE},
    )
    if found.x is None:
        raise RuntimeError(f"no answer for {given}: {found.message}")
    return round(found.fun), found.status == 0


def used(given: Instance, placed: Sequence[Nodes]) -> int:
    """The sum of the nodes of each gang. Checks that every gang is complete and fits on the free GPUs."""
    taken = Counter(node for nodes in placed for node in nodes)
    assert all(count <= given.free[node] for node, count in taken.items())
    assert [len(nodes) for nodes in placed] == list(given.gangs)
    return sum(len(set(nodes)) for nodes in placed)


@dataclass(slots=True)
class Cell:
    nodes: list[int] = field(default_factory=list)
    least: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        equal = sum(one == other for one, other in zip(self.nodes, self.least, strict=True))
        return f"{sum(self.nodes) / sum(self.least):.3f} ({equal / len(self.nodes):.0%})"


WAYS: Mapping[str, Callable[[Instance, random.Random], Sequence[Nodes]]] = {
    **{name: by_policy(name) for name in POLICIES},
    "best fit": best_fit,
    "DRAGON as coded": dragon,
    "kube-scheduler": kube_spread,
}


def measure(sizes: Sequence[int], instances: int, seed: int) -> None:
    title = f"nodes over the optimum (optimal), {instances} instances a row, seed {seed}, {load()}"
    table = Table("nodes", "asked of free", *WAYS, "optimum found in", title=title)
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for nodes, fill in ((nodes, fill) for nodes in sizes for fill in FILLS):
        cells = {way: Cell() for way in WAYS}
        times: list[float] = []
        unproved = 0
        for number in range(instances):
            given = instance(nodes, fill, random.Random(f"{seed} {nodes} {fill} {number}"))
            begin = time.perf_counter()
            least, is_proved = optimum(given)
            times.append(time.perf_counter() - begin)
            unproved += not is_proved
            for way, place in WAYS.items():
                begin = time.perf_counter()
                placed = place(given, random.Random(number))
                taken[way].append(time.perf_counter() - begin)
                cells[way].nodes.append(used(given, placed))
                cells[way].least.append(least)
        found = f"{sum(times) / len(times):.2f} s" + (f", {unproved} unproved" if unproved else "")
        table.add_row(str(nodes), f"{fill:.0%}", *(str(cells[way]) for way in WAYS), found)
    Console(width=max(140, Console().width)).print(table)
    for way, seconds in taken.items():
        print(f"{way}: {1000 * sum(seconds) / len(seconds):.2f} ms an instance, at most {1000 * max(seconds):.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--instances", type=int, default=30, help="random instances per row")
    parser.add_argument("--nodes", default="8,16,32")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    measure([int(nodes) for nodes in options.nodes.split(",")], options.instances, options.seed)


if __name__ == "__main__":
    main()
