#!/usr/bin/env python3
"""How long the operator takes to react: to a new job, and to a change of a pod.

    python bench/latency.py [--oldest] [--jobs N] [--changes N] [--rate N]

One job of one parameter server and four workers after the other is submitted to an idle operator. The time is measured
from just before that request until a watch has delivered the job's last Service and pod.

Then there are 1,000 running jobs of five pods each. Pods of different jobs succeed at a constant rate, first four a
second, as on an idle cluster, then fifty. The time is measured from just before that request until a watch delivers a
job status that counts the success. It includes the request that changes the pod, the watch of the operator, the
decision, the request that writes the status, and the watch of this program. The rows below are the time until a watch
delivers the change of the pod itself, which no operator can beat.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench.support.control_plane import (  # noqa: E402
    TFJOBS,
    BenchCluster,
    bench_cluster,
    chosen_release,
    job,
    load,
    offer_release,
    operator_process,
    percentile,
    run,
    until,
)
from bench.support.job_copies import a_template, copy, name, succeeds  # noqa: E402
from tarragon.client.port import Selector  # noqa: E402
from tarragon.client.streams import closing_stream  # noqa: E402
from tarragon.kube.core import PODS, SERVICES  # noqa: E402
from tarragon.kube.meta import Key, Resource  # noqa: E402
from tools.controlplane import Release  # noqa: E402

WORKERS = 4
NAMESPACE = "bench"
NEW_JOBS = 20
IDLE_CHANGES = 40
IDLE_RATE = 4.0
NEW_JOB_GOAL = 0.040
IDLE_GOAL = 0.015
BUSY_GOAL = 0.150


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


async def new_jobs(plane: BenchCluster) -> list[float]:
    """The seconds from each job's submission until a watch has delivered all of its objects."""
    namespace = await plane.namespace(NAMESPACE)
    seen: list[float] = []
    async with operator_process(plane) as operator:
        await operator.ready()
        await operator.idle()
        for number in range(NEW_JOBS):
            waits = [asyncio.create_task(delivered(plane, kind, WORKERS + 1)) for kind in (SERVICES, PODS)]
            await asyncio.sleep(0.5)  # the watches are open, and nothing of the last job goes on
            began = time.monotonic()
            await plane.client.create(TFJOBS, job(namespace, name(number), WORKERS))
            seen.append(max(await asyncio.gather(*waits)) - began)
    return seen


async def delivered(plane: BenchCluster, kind: Resource[Any], count: int) -> float:
    """When a watch from now on has delivered so many new objects."""
    since = (await plane.client.list(kind, Selector(NAMESPACE))).resource_version
    async with closing_stream(plane.client.watch(kind, Selector(NAMESPACE), since)) as events:
        async for event in events:
            count -= event.type == "ADDED"
            if not count:
                break
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class Changes:
    """The seconds until each job's status counted a change, and until the change itself was seen."""

    counted: list[float]
    seen: list[float]


async def changes(plane: BenchCluster, jobs: Sequence[int], rate: float) -> Changes:
    watchers = Watchers(plane)
    watching = [asyncio.create_task(watchers.jobs()), asyncio.create_task(watchers.pods())]
    await asyncio.sleep(2.0)
    began = await change(plane, jobs, rate)

    async def all_counted() -> bool:
        return began.keys() <= watchers.counted.keys()

    await until(all_counted, "all changes are counted", patience=60)
    for task in watching:
        task.cancel()
    pods = {job: f"{job}-worker-{WORKERS - 1}" for job in began}
    return Changes(
        [watchers.counted[job] - at for job, at in began.items()],
        [watchers.shown[pods[job]] - at for job, at in began.items()],
    )


async def measure(release: Release, jobs: int, number: int, rate: float) -> None:
    async with bench_cluster(release) as plane:
        made = await new_jobs(plane)
    async with bench_cluster(release) as plane:
        await fill(plane, jobs)
        async with operator_process(plane) as operator:
            await operator.ready()
            await operator.idle(120)
            chosen = random.Random(1).sample(range(1, jobs), min(number + IDLE_CHANGES, jobs - 1))
            idle = await changes(plane, chosen[:IDLE_CHANGES], IDLE_RATE)
            before, spent = await operator.metrics(), operator.cpu()
            busy = await changes(plane, chosen[IDLE_CHANGES:], rate)
            spent = operator.cpu() - spent
            writes = sum((await operator.metrics()).calls().values()) - sum(before.calls().values())
    title = f"{jobs} running jobs, Kubernetes {release.name}, {load()}"
    table = Table("milliseconds", "p50", "p90", "p99", "most", title=title)
    for what, measured in (
        ("a new job's objects are there, idle operator, no other jobs", made),
        (f"a job's status tells of a change, {IDLE_RATE:g} a second", idle.counted),
        ("the pod's own watch tells of it", idle.seen),
        (f"a job's status tells of a change, {rate:g} a second", busy.counted),
        ("the pod's own watch tells of it", busy.seen),
    ):
        table.add_row(what, *(f"{percentile(measured, percent) * 1000:.0f}" for percent in (50, 90, 99, 100)))
    console = Console(width=max(110, Console().width))
    console.print(table)
    for what, value, goal in (
        ("new job, p50", percentile(made, 50), NEW_JOB_GOAL),
        ("change on an idle operator, p50", percentile(idle.counted, 50), IDLE_GOAL),
        (f"{rate:g} changes a second, p99", percentile(busy.counted, 99), BUSY_GOAL),
    ):
        verdict = "met" if value <= goal else "missed"
        console.print(f"{what}: {value * 1000:.0f} ms; goal: <= {goal * 1000:.0f} ms: {verdict}")
    seconds = len(busy.counted) / rate
    console.print(f"operator: {writes / len(busy.counted):.1f} calls a change, {spent / seconds:.0%} of a core")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=1000, help="at most the number of jobs")
    parser.add_argument("--rate", type=float, default=50.0, help="changes a second")
    offer_release(parser)
    options = parser.parse_args()
    release = chosen_release(options)
    run(lambda: measure(release, options.jobs, options.changes, options.rate), 600, release)


if __name__ == "__main__":
    main()
