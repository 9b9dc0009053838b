#!/usr/bin/env python3
"""Throughput of the embedded API in process on a real disk: durable writes, reads, watches and restart.

    python bench/store.py [--objects N] [--writers N] [--folder FOLDER]

The floor is the throughput of SQLite alone on the same disk, with one commit for each write.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tarragon.base.clock import SystemClock  # noqa: E402
from tarragon.localcluster.api.requests import ListOptions, PatchBody, PatchType, WatchOptions  # noqa: E402
from tarragon.localcluster.registry.api import Api  # noqa: E402

PODS = ("", "v1", "pods")
NAMESPACE = "default"


def pod(number: int) -> dict[str, Any]:
    """A pod like a worker of a TFJob, which has 2 kB when it is stored."""
    container = {
        "name": "tensorflow",
        "image": "tensorflow/tensorflow:2.21.0",
        "command": ["python", "/opt/train/main.py", "--steps=1000", "--batch-size=64"],
        "env": [{"name": "TF_CONFIG", "value": '{"cluster":{"worker":["job-worker-0.default.svc:2222"]}}' * 4}],
        "ports": [{"name": "tfjob-port", "containerPort": 2222}],
        "resources": {"limits": {"cpu": "2", "memory": "4Gi"}},
        "volumeMounts": [{"name": "code", "mountPath": "/opt/train"}],
    }
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "job", "uid": "u", "controller": True}
    return {
        "metadata": {
            "name": f"job-worker-{number:05}",
            "labels": {"training.kubeflow.org/job-name": "job", "training.kubeflow.org/replica-index": str(number)},
            "ownerReferences": [owner],
        },
        "spec": {"containers": [container], "volumes": [{"name": "code", "configMap": {"name": "code"}}]},
    }


class Bench:
    """A store that concurrent writers fill and change."""

    def __init__(self, api: Api, objects: int, writers: int) -> None:
        self.api = api
        self.objects = objects
        self.gate = asyncio.Semaphore(writers)
        self.collection = api.target(PODS, NAMESPACE)

    async def create(self, number: int) -> None:
        await self.api.create(self.collection, pod(number))

    async def report(self, number: int) -> None:
        target = self.api.target(PODS, NAMESPACE, f"job-worker-{number:05}", "status")
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        await self.api.patch(
            target, PatchBody(PatchType.MERGE, {"status": {"phase": "Running", "conditions": [ready]}})
        )

    async def delete(self, number: int) -> None:
        await self.api.delete(self.api.target(PODS, NAMESPACE, f"job-worker-{number:05}"))

    async def all_at_once(self, what: str, doing: Callable[[int], Awaitable[None]]) -> None:
        """Call a coroutine for every object, with as many in parallel as there are writers."""

        async def one(number: int) -> None:
            async with self.gate:
                await doing(number)

        start, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(one(number) for number in range(self.objects)))
        print_result(what, self.objects, time.perf_counter() - start, time.process_time() - cpu)

    async def watch(self, since: str) -> None:
        watch = self.api.watch(self.collection, WatchOptions(resource_version=since))
        start, cpu, seen = time.perf_counter(), time.process_time(), 0
        async for events in watch:
            seen += sum(len(event.line) > 0 for event in events)
            if seen >= self.objects:
                break
        print_result("watch replay", seen, time.perf_counter() - start, time.process_time() - cpu)

    def list(self) -> None:
        start, cpu = time.perf_counter(), time.process_time()
        size = len(b",".join(self.api.list(self.collection).items))
        print_result(
            f"list ({size / 1e6:.1f} MB)", self.objects, time.perf_counter() - start, time.process_time() - cpu
        )

    def pages(self) -> None:
        start, cpu, token, count = time.perf_counter(), time.process_time(), "", 0
        while True:
            page = self.api.list(self.collection, ListOptions(limit=500, continue_token=token))
            count, token = count + len(page.items), page.continue_token
            if not token:
                break
        print_result("list in pages of 500", count, time.perf_counter() - start, time.process_time() - cpu)


def print_result(what: str, count: int, seconds: float, cpu: float) -> None:
    print(f"{what:28} {count:7,} in {seconds:7.3f} s {count / seconds:10,.0f}/s {cpu / count * 1e6:8.0f} us CPU each")


def floor(folder: Path) -> None:
    """Measure commits of one row each, the baseline of group commit."""
    connection = sqlite3.connect(folder / "floor.db", isolation_level=None)
    for setting in ("journal_mode = WAL", "synchronous = FULL", "locking_mode = EXCLUSIVE"):
        connection.execute(f"PRAGMA {setting}")
    connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, body BLOB)")
    start, cpu, count = time.perf_counter(), time.process_time(), 300
    for number in range(count):
        connection.execute("INSERT INTO t VALUES (?, ?)", (number, b"x" * 2_000))
    print_result("floor: one row a commit", count, time.perf_counter() - start, time.process_time() - cpu)
    connection.close()


async def main(folder: Path, objects: int, writers: int) -> None:
    floor(folder)
    api = await Api.open(folder / "store.db", SystemClock())
    bench = Bench(api, objects, writers)
    since = api.list(bench.collection).resource_version
    await bench.all_at_once(f"create, {writers} writers", bench.create)
    await bench.all_at_once("patch of status", bench.report)
    bench.list()
    bench.pages()
    await bench.watch(since)
    await api.close()

    start, cpu = time.perf_counter(), time.process_time()
    api = await Api.open(folder / "store.db", SystemClock())
    print_result("open again", objects, time.perf_counter() - start, time.process_time() - cpu)
    bench = Bench(api, objects, writers)
    await bench.all_at_once("delete", bench.delete)
    await api.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak memory {peak / 1024:.0f} MiB, file {(folder / 'store.db').stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--objects", type=int, default=5_000)
    arguments.add_argument("--writers", type=int, default=32)
    arguments.add_argument("--folder", type=Path, help="the folder of the store; default: a temporary folder")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as temporary:
        asyncio.run(main(Path(temporary), given.objects, given.writers))
