#!/usr/bin/env python3
"""The latency from a change of a pod to the status of its job, with 1,000 running jobs of five pods each.

    python bench/latency.py [--jobs N] [--changes N] [--rate N]

Pods of different jobs succeed at a constant rate. The time is measured from just before that request until a watch
delivers a job status that counts the success. It includes the request that changes the pod, the watch of the operator,
the decision, the request that writes the status, and the watch of this program. The second row is the time until a
watch delivers the change of the pod itself, which no operator can beat.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench.support.control_plane import (  # noqa: E402
    TFJOBS,
    BenchCluster,
    bench_cluster,
    load,
    operator_process,
    percentile,
    run,
    until,
)
from bench.support.job_copies import a_template, copy, name, succeeds  # noqa: E402
from tarragon.client.port import Selector  # noqa: E402
from tarragon.client.streams import closing_stream  # noqa: E402
from tarragon.kube.core import PODS  # noqa: E402
from tarragon.kube.meta import Key  # noqa: E402

WORKERS = 4
NAMESPACE = "bench"
GOAL = 0.25


class Watchers:
    """Watches that record when each job's status first counted a success and when each pod was first seen succeeded."""

    def __init__(self, plane: BenchCluster) -> None:
        self._plane = plane
        self.counted: dict[str, float] = {}
        self.shown: dict[str, float] = {}

    async def jobs(self) -> None:
        since = (await self._plane.client.list(TFJOBS, Selector(NAMESPACE))).resource_version
        async with closing_stream(self._plane.client.watch(TFJOBS, Selector(NAMESPACE), since)) as events:
            async for event in events:
                if event.object is not None and successes(event.object.status):
                    self.counted.setdefault(event.object.metadata.name, time.monotonic())

    async def pods(self) -> None:
        since = (await self._plane.client.list(PODS, Selector(NAMESPACE))).resource_version
        async with closing_stream(self._plane.client.watch(PODS, Selector(NAMESPACE), since)) as events:
            async for event in events:
                if event.object is not None and event.object.status.phase == "Succeeded":
                    self.shown.setdefault(event.object.metadata.name, time.monotonic())


def successes(status: object) -> int:
    counts = status.get("replicaStatuses", {}).get("Worker", {}) if isinstance(status, dict) else {}
    return int(counts.get("succeeded", 0))


async def fill(plane: BenchCluster, jobs: int) -> None:
    """Create running jobs. No operator runs on return, so that the next one finds all of them at its start."""
    namespace = await plane.namespace(NAMESPACE)
    async with operator_process(plane) as operator:
        await operator.ready()
        template = await a_template(plane, operator, namespace, WORKERS)
    await copy(plane, template, range(1, jobs))


async def change(plane: BenchCluster, jobs: Sequence[int], rate: float) -> dict[str, float]:
    """Let a pod of each job succeed, at a constant rate. Returns the time of each change by job."""
    began: dict[str, float] = {}
    start = time.monotonic()

    async def one(position: int, number: int) -> None:
        await asyncio.sleep(max(0.0, start + position / rate - time.monotonic()))
        began[name(number)] = time.monotonic()
        await succeeds(plane, Key(NAMESPACE, f"{name(number)}-worker-{WORKERS - 1}"))

    await asyncio.gather(*(one(position, number) for position, number in enumerate(jobs)))
    return began


async def measure(jobs: int, changes: int, rate: float) -> None:
    async with bench_cluster() as plane:
        await fill(plane, jobs)
        async with operator_process(plane) as operator:
            await operator.ready()
            await operator.idle(120)
            watchers = Watchers(plane)
            watching = [asyncio.create_task(watchers.jobs()), asyncio.create_task(watchers.pods())]
            await asyncio.sleep(2.0)
            chosen = random.Random(1).sample(range(1, jobs), changes)
            before, spent = await operator.metrics(), operator.cpu()
            began = await change(plane, chosen, rate)

            async def all_counted() -> bool:
                return len(watchers.counted) >= changes and len(watchers.shown) >= changes

            await until(all_counted, "all changes are counted", patience=60)
            seconds, spent = changes / rate, operator.cpu() - spent
            writes = sum((await operator.metrics()).calls().values()) - sum(before.calls().values())
            for task in watching:
                task.cancel()
    jobs_seen = [watchers.counted[job] - at for job, at in began.items()]
    pods_seen = [watchers.shown[f"{job}-worker-{WORKERS - 1}"] - at for job, at in began.items()]
    title = f"{jobs} running jobs, {rate:g} changes a second, {load()}"
    table = Table("milliseconds", "p50", "p90", "p99", "most", title=title)
    for what, seen in (("the job's status tells it", jobs_seen), ("the pod's own watch tells it", pods_seen)):
        table.add_row(what, *(f"{percentile(seen, percent) * 1000:.0f}" for percent in (50, 90, 99, 100)))
    console = Console(width=max(100, Console().width))
    console.print(table)
    worst = percentile(jobs_seen, 99)
    console.print(f"p99 {worst * 1000:.0f} ms; goal: < {GOAL * 1000:.0f} ms: {'met' if worst < GOAL else 'missed'}")
    console.print(f"operator: {writes / changes:.1f} calls a change, {spent / seconds:.0%} of a core")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=1000, help="at most the number of jobs")
    parser.add_argument("--rate", type=float, default=50.0, help="changes a second")
    options = parser.parse_args()
    changes = min(options.changes, options.jobs - 1)
    run(lambda: measure(options.jobs, changes, options.rate), 600)


if __name__ == "__main__":
    main()
