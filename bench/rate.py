#!/usr/bin/env python3
"""Jobs a second, from their creation until all objects are created and the status is written, against bare clients.

    python bench/rate.py [--oldest] [--jobs N] [--rounds N] [--only NAME...]

Each job has one parameter server and four workers. The control plane is a real etcd and kube-apiserver without other
controllers, fresh for each run; the operator is a `tarragon operator` process. The runs of a round:

- `gang`: Tarragon places the jobs.
- `default-scheduler`: kube-scheduler would place them, which a job's `schedulerName` says.
- `least calls`: a bare client that makes the fewest calls with which a job could be started and its status be told: a
  Service and a pod for each replica, and one status. It neither watches nor reads nor decides, and records no event.
- `same calls`: a bare client that makes the calls of the run `gang` of that round.

Bare clients have as many jobs and connections at once as the operator. Times and calls come from the API server's audit
log, from the first job's creation to the last write.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import statistics
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
    chosen_release,
    cpu_of,
    each,
    job,
    load,
    offer_release,
    operator_process,
    run,
    until,
)
from bench.support.recorded_writes import RecordedJob, RecordedWrite, Recorder  # noqa: E402
from tarragon.base.clock import SystemClock  # noqa: E402
from tarragon.client.port import Selector  # noqa: E402
from tarragon.kube.core import PODS  # noqa: E402
from tarragon.operator.manager.operator import Operator, OperatorOptions  # noqa: E402
from tools.controlplane import Release  # noqa: E402

WORKERS = 4
REPLICAS = WORKERS + 1
CREATES_AT_ONCE = 16
RATE_GOAL = 0.75
CPU_GOAL = 1.2
WRITES_GOAL = 13.0
FIRST = "job-00000"
GANG, OTHERS, LEAST, SAME = "gang", "default-scheduler", "least calls", "same calls"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    jobs: int
    seconds: float
    calls: Mapping[tuple[str, str], int]
    cpu: float
    server_cpu: float

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds

    @property
    def writes(self) -> float:
        return sum(self.calls.values()) / self.jobs


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


def least_calls(calls: RecordedJob) -> RecordedJob:
    """The Services and pods of the recorded job, and one status such as Kubeflow's operator writes."""
    created = [call for call in calls.calls if call.kind in {("create", "services"), ("create", "pods")}]
    moment = "2026-11-27T00:00:00Z"

    def condition(kind: str) -> dict[str, str]:
        times = {"lastTransitionTime": moment, "lastUpdateTime": moment}
        return {
            "type": kind,
            "status": "True",
            "reason": f"TFJob{kind}",
            "message": f"TFJob {FIRST} is {kind}",
            **times,
        }

    status = {
        "conditions": [condition("Created"), condition("Running")],
        "replicaStatuses": {"PS": {}, "Worker": {}},
        "startTime": moment,
    }
    path = TFJOBS.path(calls.namespace, FIRST, "status")
    kind = ("patch", f"{TFJOBS.full_name}/status")
    written = RecordedWrite(kind, "PATCH", path, json.dumps({"metadata": {}, "status": status}))
    return RecordedJob(calls.job, calls.namespace, [*created, written])


async def ours(plane: BenchCluster, jobs: int, scheduler: str) -> Run:
    namespace = await plane.namespace("operator")
    async with operator_process(plane) as operator:
        await operator.ready()
        await operator.idle()
        before, server = operator.cpu(), plane.server_cpu()
        await each(
            range(jobs),
            lambda number: plane.client.create(TFJOBS, a_job(namespace, number, scheduler)),
            CREATES_AT_ONCE,
        )

        async def made() -> bool:
            return (await operator.metrics()).total("tarragon_cache_objects", resource="pods") >= jobs * REPLICAS

        await until(made, "all pods are made", patience=300, pause=1.0)
        await operator.idle(120)
        spent, server = operator.cpu() - before, plane.server_cpu() - server
    await require_all(plane, namespace, jobs)
    return await audited(plane, namespace, jobs, spent, server)


async def bare(plane: BenchCluster, jobs: int, totals: Mapping[tuple[str, str], int], calls: RecordedJob) -> Run:
    namespace = await plane.namespace("client")
    plan = {
        "calls": [(call.kind, call.method, call.path, call.body) for call in calls.calls],
        "job": calls.job,
        "namespace": calls.namespace,
        "into": namespace,
        "jobs": jobs,
        "totals": [(*kind, count) for kind, count in totals.items()],
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
    before, server = cpu_of(process.pid), plane.server_cpu()

    async def submit(number: int) -> None:
        await plane.client.create(TFJOBS, a_job(namespace, number))
        stdin.write(f"{name(number)}\n".encode())

    await each(range(jobs), submit, CREATES_AT_ONCE)
    spent = 0.0
    stdin.close()
    while process.returncode is None:
        spent = cpu_of(process.pid)
        await asyncio.wait((asyncio.ensure_future(process.wait()),), timeout=0.2)
    if process.returncode:
        raise RuntimeError("the bare client has failed; see its error above")
    server = plane.server_cpu() - server
    await require_all(plane, namespace, jobs)
    return await audited(plane, namespace, jobs, spent - before, server)


def name(number: int) -> str:
    return f"job-{number:05}"


def a_job(namespace: str, number: int, scheduler: str = "") -> dict[str, object]:
    made = job(namespace, name(number), WORKERS)
    for group in made["spec"]["tfReplicaSpecs"].values() if scheduler else ():
        group["template"]["spec"]["schedulerName"] = scheduler
    return made


async def require_all(plane: BenchCluster, namespace: str, jobs: int) -> None:
    pods = await plane.client.list(PODS, Selector(namespace))
    found = await plane.client.list(TFJOBS, Selector(namespace))
    without = [each.metadata.name for each in found.items if not (each.status or {}).get("conditions")]
    if len(pods.items) != jobs * REPLICAS or without:
        raise RuntimeError(f"{namespace}: {len(pods.items)} pods, {len(without)} jobs without a status")


async def audited(plane: BenchCluster, namespace: str, jobs: int, cpu: float, server_cpu: float) -> Run:
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
    return Run(jobs=jobs, seconds=seconds, calls=calls, cpu=cpu, server_cpu=server_cpu)


def show(release: Release, runs: Mapping[str, Sequence[Run]]) -> None:
    jobs = next(iter(runs.values()))[0].jobs
    title = f"{jobs} jobs of {REPLICAS} replicas, Kubernetes {release.name}, {load()}; medians of each column"
    table = Table("", "jobs a second", "writes a job", "API server, CPU ms a job", "own CPU ms a job", title=title)
    for who, measured in runs.items():
        columns = [[one.rate for one in measured], [one.writes for one in measured]]
        columns += [[one.server_cpu / jobs * 1000 for one in measured], [one.cpu / jobs * 1000 for one in measured]]
        table.add_row(who, *(f"{statistics.median(column):.1f}" for column in columns))
    calls = Table("verb", "resource", *runs, title="calls a job")
    for kind in sorted({kind for measured in runs.values() for kind in measured[-1].calls}):
        calls.add_row(*kind, *(f"{measured[-1].calls.get(kind, 0) / jobs:.2f}" for measured in runs.values()))
    console = Console(width=max(110, Console().width))
    console.print(table)
    console.print(calls)
    for who in (GANG, OTHERS):
        if who in runs and LEAST in runs:
            pairs = list(zip(runs[who], runs[LEAST], strict=True))
            ratios = [mine.rate / least.rate for mine, least in pairs]
            loads = [mine.server_cpu / least.server_cpu for mine, least in pairs]
            writes = runs[who][-1].writes
            console.print(f"{who}, against {LEAST}:")
            console.print(
                f"  jobs a second: {_verdict(ratios, met=statistics.median(ratios) >= RATE_GOAL)}, >= {RATE_GOAL}"
            )
            console.print(f"  API server: {_verdict(loads, met=statistics.median(loads) <= CPU_GOAL)}, <= {CPU_GOAL}")
            console.print(f"  writes a job: {_verdict([writes], met=writes <= WRITES_GOAL)}, <= {WRITES_GOAL}")


def _verdict(ratios: Sequence[float], *, met: bool) -> str:
    every = ", ".join(f"{each:.2f}" for each in ratios)
    return f"{statistics.median(ratios):.2f} ({every}); goal {'met' if met else 'missed'}"


async def measure(release: Release, jobs: int, rounds: int, only: Sequence[str]) -> None:
    """Measure each run on a new control plane, so that objects of an earlier run cause no work."""
    async with bench_cluster(release) as plane:
        calls = await recorded(plane)
    least = least_calls(calls)
    kinds = Counter(call.kind for call in least.calls)
    runs: dict[str, list[Run]] = {name: [] for name in only}
    last: dict[tuple[str, str], int] = {}
    measures: Mapping[str, Callable[[BenchCluster], Awaitable[Run]]] = {
        GANG: lambda plane: ours(plane, jobs, ""),
        OTHERS: lambda plane: ours(plane, jobs, "default-scheduler"),
        LEAST: lambda plane: bare(plane, jobs, {kind: count * jobs for kind, count in kinds.items()}, least),
        SAME: lambda plane: bare(plane, jobs, last, calls),
    }
    for _ in range(rounds):
        for who, measured in runs.items():
            async with bench_cluster(release) as plane:
                one = await measures[who](plane)
            server = one.server_cpu / jobs * 1000
            print(f"{who}: {one.rate:.1f} jobs/s, {one.writes:.1f} writes, API server {server:.1f} ms", flush=True)
            measured.append(one)
            if who == GANG:
                last = dict(one.calls)
    show(release, runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=[GANG, OTHERS, LEAST, SAME], default=[GANG, OTHERS, LEAST, SAME])
    offer_release(parser)
    options = parser.parse_args()
    release = chosen_release(options)
    run(lambda: measure(release, options.jobs, options.rounds, options.only), 3600, release)


if __name__ == "__main__":
    main()
