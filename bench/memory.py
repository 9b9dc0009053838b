#!/usr/bin/env python3
"""The operator's memory with 0, 1,000 and 10,000 jobs, its restart time, and its CPU usage when idle.

    python bench/memory.py [--oldest] [--jobs N] [--seconds S]

Each job has four running pods and their services. The operator creates the first job; the others are copies of it, made
while no operator runs. Memory is PSS (the pages that processes share are divided among them), and its peak is RSS.

Before the last operator starts, a pod of one job succeeds: the first correct action is to update that job's status.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench.support.control_plane import (  # noqa: E402
    TFJOBS,
    BenchCluster,
    OperatorProcess,
    bench_cluster,
    chosen_release,
    load,
    offer_release,
    operator_process,
    run,
    until,
)
from bench.support.job_copies import a_template, copy, name, succeeds  # noqa: E402
from tarragon.kube.meta import Key  # noqa: E402
from tools.controlplane import Release  # noqa: E402

WORKERS = 3
FEW = 1000
NAMESPACE = "bench"
GOALS = {"idle": 80.0, "few": 150.0, "many": 512.0}
BACK = 4.0


class Results:
    def __init__(self, release: Release) -> None:
        title = f"The operator's process, Kubernetes {release.name}, {load()}"
        self._table = Table("what", "measured", "goal", title=title)
        self._console = Console(width=max(100, Console().width))

    def memory(self, what: str, operator: OperatorProcess, goal: str = "") -> None:
        usage = operator.memory()
        wanted = f"<= {GOALS[goal]:.0f} MiB" if goal else ""
        words = f"{usage['Pss']:.0f} MiB (RSS {usage['Rss']:.0f}, at most {operator.peak:.0f} so far)"
        self.say(f"memory, {what}", words, wanted)

    def say(self, what: str, words: str, goal: str = "") -> None:
        print(f"{what}: {words}", flush=True)
        self._table.add_row(what, words, goal)

    def show(self) -> None:
        self._console.print(self._table)


async def knows(operator: OperatorProcess, jobs: int) -> None:
    """Wait until the operator's caches are full, all jobs are reconciled, and it is idle."""
    await operator.ready()

    async def holds() -> bool:
        metrics = await operator.metrics()
        pods = metrics.total("tarragon_cache_objects", resource="pods")
        services = metrics.total("tarragon_cache_objects", resource="services")
        return min(pods, services) >= jobs * (WORKERS + 1)

    await until(holds, f"the operator knows {jobs} jobs", patience=120, pause=1.0)
    await operator.idle(300)


async def rest(operator: OperatorProcess, seconds: float) -> str:
    before = operator.cpu()
    await asyncio.sleep(seconds)
    return f"{(operator.cpu() - before) / seconds:.1%} of a core over {seconds:g} s"


async def measure(release: Release, jobs: int, seconds: float) -> None:
    results = Results(release)
    async with bench_cluster(release) as plane:
        namespace = await plane.namespace(NAMESPACE)
        async with operator_process(plane) as operator:
            await operator.ready()
            await operator.idle()
            results.memory("idle", operator, "idle")
            results.say("CPU at rest, idle", await rest(operator, min(seconds, 10)))
            template = await a_template(plane, operator, namespace, WORKERS)
        await copy(plane, template, range(1, FEW))
        async with operator_process(plane) as operator:
            await knows(operator, FEW)
            results.memory(f"{FEW:,} jobs", operator, "few")
        await copy(plane, template, range(FEW, jobs))
        await come_back(plane, results, jobs, seconds)
    results.show()


async def come_back(plane: BenchCluster, results: Results, jobs: int, seconds: float) -> None:
    """Measure a restart. The changed job is in the middle of the list, neither its first nor its last."""
    number = jobs // 2
    await succeeds(plane, Key(NAMESPACE, f"{name(number)}-worker-1"))
    began = time.monotonic()
    async with operator_process(plane) as operator:
        ready = asyncio.create_task(when(operator.is_ready))
        acted = asyncio.create_task(when(lambda: is_counted(plane, number)))
        results.say("restart: ready", f"{await ready - began:.1f} s, {operator.cpu():.1f} s of CPU")
        results.say("restart: first correct action", f"{await acted - began:.1f} s", f"< {BACK:.0f} s")
        await knows(operator, jobs)
        results.say("restart: all jobs looked at", f"{time.monotonic() - began:.1f} s (seen every second)")
        results.memory(f"{jobs:,} jobs, after the restart", operator, "many")
        results.say("all that it wrote", written((await operator.metrics()).calls()))
        results.say(f"CPU at rest, {jobs:,} jobs", await rest(operator, seconds))
        results.memory(f"{jobs:,} jobs, after that rest", operator, "many")


async def when(holds: object) -> float:
    await until(holds, "the operator is back", patience=120, pause=0.05)  # type: ignore[arg-type]
    return time.monotonic()


async def is_counted(plane: BenchCluster, number: int) -> bool:
    found = await plane.client.get(TFJOBS, Key(NAMESPACE, name(number)))
    counts: Mapping[str, int] = found.status["replicaStatuses"]["Worker"]
    return counts.get("succeeded", 0) == 1


def written(calls: Mapping[tuple[str, str], int]) -> str:
    writes: Sequence[str] = [
        f"{count} {verb} {resource}"
        for (verb, resource), count in sorted(calls.items())
        if verb not in {"list", "get"} and count
    ]
    return ", ".join(writes) or "nothing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30.0, help="duration of the measurement when idle")
    offer_release(parser)
    options = parser.parse_args()
    release = chosen_release(options)
    run(lambda: measure(release, options.jobs, options.seconds), 900, release)


if __name__ == "__main__":
    main()
