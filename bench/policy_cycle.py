#!/usr/bin/env python3
"""The duration and memory of a scheduling cycle of a policy on a large cluster, and how the duration grows.

    python bench/policy_cycle.py [--rounds N] [--nodes N] [--waiting N] [--running N] [--policy NAME] [--no-growth]
                                 [--sharing PART]

The cluster has nodes of four models in racks and zones, and gangs of 600 shapes in 12 namespaces, a third of them
elastic. Between cycles some running gangs finish and as many are submitted. Only the policy is timed, from the snapshot
to its decisions, as wall time and as CPU time, which depends less on other load. The garbage collector has the
operator's settings.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench.support.control_plane import load  # noqa: E402
from bench.support.random_cluster import RandomCluster  # noqa: E402
from tarragon.scheduling.api.decision import Admit, Defer, Resize  # noqa: E402
from tarragon.scheduling.policies import POLICIES  # noqa: E402
from tarragon.scheduling.state.memory import Memory  # noqa: E402

GOAL = 100.0
CHANGES = 10
"""The number of gangs that finish before each cycle, and of gangs that are submitted."""
PAUSE = 5.0
"""Seconds between two cycles."""


@dataclass(frozen=True, slots=True)
class Scene:
    nodes: int
    waiting: int
    running: int
    sharing: float = 0.0
    """The part of the gangs with GPUs whose replicas need parts of one."""

    def __str__(self) -> str:
        shares = f", {self.sharing:.0%} share GPUs" if self.sharing else ""
        return f"{self.nodes:,} nodes, {self.waiting:,} waiting, {self.running:,} running{shares}"


@dataclass(frozen=True, slots=True)
class Measured:
    first: float
    times: Sequence[float]
    """Milliseconds, in order of size."""
    cpu: Sequence[float]
    decided: Counter[str]


def percentile(times: Sequence[float], part: float) -> float:
    return times[round(part * (len(times) - 1))]


def measured(policy: str, scene: Scene, rounds: int, seed: int) -> Measured:
    crowd, memory = RandomCluster.of(scene.nodes, scene.waiting, scene.running, seed, scene.sharing), Memory()
    times: list[float] = []
    cpu: list[float] = []
    decided: Counter[str] = Counter()
    for _ in range(rounds + 1):
        snapshot = crowd.snapshot()
        begin, began = time.perf_counter(), time.thread_time()
        decisions = POLICIES[policy](snapshot, memory)
        times.append((time.perf_counter() - begin) * 1000)
        cpu.append((time.thread_time() - began) * 1000)
        if len(times) > 1:
            decided.update(
                kind.__name__ for one in decisions for kind in (Admit, Resize, Defer) if isinstance(one, kind)
            )
        crowd.advance(decisions, CHANGES, scene.waiting - len(crowd.waiting) + CHANGES, PAUSE)
    return Measured(times[0], sorted(times[1:]), sorted(cpu[1:]), decided)


def held(policy: str, scene: Scene, seed: int) -> str:
    """The memory of a cycle in addition to the snapshot: its peak, and what is left afterwards."""
    crowd, memory = RandomCluster.of(scene.nodes, scene.waiting, scene.running, seed, scene.sharing), Memory()
    snapshot = crowd.snapshot()
    process = psutil.Process()
    resident = process.memory_info().rss / 2**20
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    decisions = POLICIES[policy](snapshot, memory)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decisions
    mebi = 2**20
    return f"{(peak - before) / mebi:.1f} MiB at most, {(after - before) / mebi:.1f} stay; process {resident:.0f} MiB"


def show(title: str, rows: Sequence[tuple[str, Scene, Measured]]) -> None:
    table = Table(
        "policy", "scene", "first ms", "p50 ms", "p99 ms", "CPU p50", "CPU p99", "a round decides", title=title
    )
    for policy, scene, result in rows:
        rounds = len(result.times)
        decides = ", ".join(f"{count / rounds:.0f} {kind}" for kind, count in sorted(result.decided.items()))
        numbers = [
            result.first,
            *(percentile(times, part) for times in (result.times, result.cpu) for part in (0.5, 0.99)),
        ]
        table.add_row(policy, str(scene), *(f"{number:.1f}" for number in numbers), decides)
    Console(width=max(140, Console().width)).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--running", type=int, default=2000)
    parser.add_argument("--policy", choices=sorted(POLICIES), action="append", help="only these policies; default: all")
    parser.add_argument("--no-growth", action="store_true", help="measure only one cluster size")
    parser.add_argument("--sharing", type=float, default=0.0, help="the part of the gangs with GPUs that share them")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    gc.set_threshold(50_000, 20, 50)  # as in operator/manager/process.py
    policies = options.policy or list(POLICIES)
    scene = Scene(options.nodes, options.waiting, options.running, options.sharing)
    rows = [(policy, scene, measured(policy, scene, options.rounds, options.seed)) for policy in policies]
    show(f"a round, goal p99 < {GOAL:.0f} ms, {load()}", rows)
    for policy in policies:
        print(f"memory, {policy}: {held(policy, scene, options.seed)}")
    if not options.no_growth:
        parts = (8, 4, 2, 1)
        nodes = [Scene(scene.nodes // part, scene.waiting, scene.running // part, scene.sharing) for part in parts]
        gangs = [Scene(scene.nodes, scene.waiting // part, scene.running, scene.sharing) for part in parts]
        for title, scenes in (
            ("growth with nodes and what runs on them", nodes),
            ("growth with gangs that wait", gangs),
        ):
            few = max(10, options.rounds // 5)
            show(title, [(name, one, measured(name, one, few, options.seed)) for name in policies for one in scenes])


if __name__ == "__main__":
    main()
