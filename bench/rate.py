#!/usr/bin/env python3
"""Jobs a second, from their creation until all objects are created and the status is written, against a bare client.

    python bench/rate.py [--jobs N] [--rounds N]

Each job has one parameter server and four workers. The control plane is a real etcd and kube-apiserver; the operator is
a `tarragon operator` process. The bare client, also a process, makes the same writes: those that the operator made for
one job, as often as the operator did on average, with as many jobs and connections in parallel, but without watches,
reads and decisions. The two run in turns. Times and calls come from the API server's audit log, from the first job's
creation to the last write.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench.support.control_plane import (  # noqa: E402
    TFJOBS,
    BenchCluster,
    bench_cluster,
    cpu_of,
    each,
    job,
    load,
    operator_process,
    run,
    until,
)
from bench.support.recorded_writes import RecordedJob, Recorder  # noqa: E402
from tarragon.base.clock import SystemClock  # noqa: E402
from tarragon.client.port import Selector  # noqa: E402
from tarragon.kube.core import PODS  # noqa: E402
from tarragon.operator.manager.operator import Operator, OperatorOptions  # noqa: E402

WORKERS = 4
REPLICAS = WORKERS + 1
CREATES_AT_ONCE = 16
GOAL = 0.8
FIRST = "job-00000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    jobs: int
    seconds: float
    calls: Mapping[tuple[str, str], int]
    cpu: float

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds


async def recorded(plane: BenchCluster) -> RecordedJob:
    """Record all writes of the operator for one job."""
    namespace = await plane.namespace("recorded")
    recorder = Recorder(plane.client)
    operator = asyncio.create_task(Operator(recorder, SystemClock(), OperatorOptions()).run())
    await plane.client.create(TFJOBS, job(namespace, FIRST, WORKERS))
    written = -1

    async def rests() -> bool:
        nonlocal written
        before, written = written, len(recorder.calls)
        return before == written and sum(call.kind == ("create", "pods") for call in recorder.calls) == REPLICAS

    await until(rests, "the first job is made", pause=1.0)
    operator.cancel()
    return RecordedJob(FIRST, namespace, list(recorder.calls))


async def ours(plane: BenchCluster, namespace: str, jobs: int) -> Run:
    async with operator_process(plane) as operator:
        await operator.ready()
        await operator.idle()
        before = operator.cpu()
        await each(range(jobs), lambda number: plane.client.create(TFJOBS, a_job(namespace, number)), CREATES_AT_ONCE)

        async def made() -> bool:
            return (await operator.metrics()).total("tarragon_cache_objects", resource="pods") >= jobs * REPLICAS

        await until(made, "all pods are made", patience=300, pause=1.0)
        await operator.idle(120)
        spent = operator.cpu() - before
    await require_all(plane, namespace, jobs)
    return await audited(plane, namespace, jobs, spent)


async def bare(plane: BenchCluster, namespace: str, like: Run, calls: RecordedJob) -> Run:
    plan = {
        "calls": [(call.kind, call.method, call.path, call.body) for call in calls.calls],
        "job": calls.job,
        "namespace": calls.namespace,
        "into": namespace,
        "jobs": like.jobs,
        "totals": [(*kind, count) for kind, count in like.calls.items()],
        "url": plane.control_plane.url,
        "folder": str(plane.control_plane.folder),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.support.bare"),
        stdin=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdin is not None
    stdin = process.stdin
    stdin.write(json.dumps(plan).encode() + b"\n")
    await stdin.drain()
    await asyncio.sleep(1.0)  # like the operator, it is ready before the first job is created
    before = cpu_of(process.pid)

    async def submit(number: int) -> None:
        await plane.client.create(TFJOBS, a_job(namespace, number))
        stdin.write(f"{name(number)}\n".encode())

    await each(range(like.jobs), submit, CREATES_AT_ONCE)
    spent = 0.0
    stdin.close()
    while process.returncode is None:
        spent = cpu_of(process.pid)
        await asyncio.wait((asyncio.ensure_future(process.wait()),), timeout=0.2)
    if process.returncode:
        raise RuntimeError("the bare client has failed; see its error above")
    await require_all(plane, namespace, like.jobs)
    return await audited(plane, namespace, like.jobs, spent - before)


def name(number: int) -> str:
    return f"job-{number:05}"


def a_job(namespace: str, number: int) -> dict[str, object]:
    return job(namespace, name(number), WORKERS)


async def require_all(plane: BenchCluster, namespace: str, jobs: int) -> None:
    pods = await plane.client.list(PODS, Selector(namespace))
    found = await plane.client.list(TFJOBS, Selector(namespace))
    without = [each.metadata.name for each in found.items if not (each.status or {}).get("conditions")]
    if len(pods.items) != jobs * REPLICAS or without:
        raise RuntimeError(f"{namespace}: {len(pods.items)} pods, {len(without)} jobs without a status")


async def audited(plane: BenchCluster, namespace: str, jobs: int, cpu: float) -> Run:
    """The times and calls in the audit log. A run is identified by its namespace."""
    calls: Counter[tuple[str, str]] = Counter()
    begins: list[dt.datetime] = []
    ends: list[dt.datetime] = []
    for event in await asyncio.to_thread(plane.control_plane.audit_events):
        about = event.get("objectRef", {})
        if about.get("namespace") != namespace or event["verb"] not in {"create", "patch", "update", "delete"}:
            continue
        if (event["verb"], about["resource"]) == ("create", "tfjobs"):
            begins.append(dt.datetime.fromisoformat(event["requestReceivedTimestamp"]))
            continue
        group = about.get("apiGroup", "")
        parts = [about["resource"] + (f".{group}" if group else ""), about.get("subresource", "")]
        calls[event["verb"], "/".join(part for part in parts if part)] += 1
        ends.append(dt.datetime.fromisoformat(event["stageTimestamp"]))
    seconds = (max(ends) - min(begins)).total_seconds()
    return Run(jobs=jobs, seconds=seconds, calls=calls, cpu=cpu)


def show(operator: Sequence[Run], client: Sequence[Run]) -> None:
    table = Table(
        "", "jobs a second", "calls a second", "CPU s of the process", title=f"{operator[0].jobs} jobs, {load()}"
    )
    for who, runs in (("tarragon operator", operator), ("bare client", client)):
        for one in runs:
            made = sum(one.calls.values()) / one.seconds
            table.add_row(who, f"{one.rate:.1f}", f"{made:,.0f}", f"{one.cpu:.1f}")
    ratios = [mine.rate / theirs.rate for mine, theirs in zip(operator, client, strict=True)]
    calls = Table("verb", "resource", "calls a job", "of the bare client")
    for verb, resource in sorted(operator[-1].calls):
        counts = [run.calls.get((verb, resource), 0) / run.jobs for run in (operator[-1], client[-1])]
        calls.add_row(verb, resource, *(f"{count:.2f}" for count in counts))
    total = [sum(run.calls.values()) / run.jobs for run in (operator[-1], client[-1])]
    calls.add_row("all", "", *(f"{count:.2f}" for count in total))
    console = Console(width=max(100, Console().width))
    console.print(table)
    console.print(calls)
    ratio = statistics.median(ratios)
    every = ", ".join(f"{each:.2f}" for each in ratios)
    console.print(f"ratio: {ratio:.2f} ({every}); goal: {GOAL:.2f} or more: {'met' if ratio >= GOAL else 'missed'}")


async def measure(jobs: int, rounds: int) -> None:
    """Measure each run on a new control plane, so that objects of an earlier run cause no work."""
    async with bench_cluster() as plane:
        calls = await recorded(plane)
    operator: list[Run] = []
    client: list[Run] = []
    for _ in range(rounds):
        async with bench_cluster() as plane:
            operator.append(await ours(plane, await plane.namespace("operator"), jobs))
        async with bench_cluster() as plane:
            client.append(await bare(plane, await plane.namespace("client"), operator[-1], calls))
    show(operator, client)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    run(lambda: measure(options.jobs, options.rounds), 900)


if __name__ == "__main__":
    main()
