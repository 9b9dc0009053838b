"""A real control plane with the CRDs and some nodes, and the operator as a separate process."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tarragon.client.errors import AlreadyExists, ApiError
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.client.http.transport import RestConfig
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES
from tarragon.kube.meta import Key
from tools.controlplane import API_SERVER, NEWEST, OLDEST, ControlPlane, Release

Json = dict[str, Any]

TFJOBS = TENSORFLOW.resource
NODE_COUNT = 100
PATIENCE = 30.0


class BenchCluster:
    """A control plane and a client of its API server."""

    def __init__(self, control_plane: ControlPlane, server: RestConfig, client: HttpClient) -> None:
        self.control_plane = control_plane
        self.server = server
        self.client = client

    def server_cpu(self) -> float:
        """The CPU seconds of kube-apiserver so far."""
        return cpu_of(self.control_plane.pid(API_SERVER))

    async def namespace(self, name: str) -> str:
        with suppress(AlreadyExists):
            await self.client.create(NAMESPACES, {"metadata": {"name": name}})
        return name


@asynccontextmanager
async def bench_cluster(release: Release = NEWEST) -> AsyncIterator[BenchCluster]:
    """A control plane of etcd and kube-apiserver only, because other controllers would disturb the measurements."""
    with tempfile.TemporaryDirectory(prefix="tarragon-bench-") as folder:
        control_plane = await asyncio.to_thread(ControlPlane.start, Path(folder), release, full=False)
        try:
            server = load_kubeconfig({}, path=control_plane.kubeconfig).rest_config
            async with HttpClient(server, random.Random(1)) as client:
                plane = BenchCluster(control_plane, server, client)
                for framework in FRAMEWORKS:
                    await client.create(CUSTOM_RESOURCE_DEFINITIONS, framework.crd())
                await until(lambda: served(client), "the kinds of jobs are served")
                await each(range(NODE_COUNT), lambda number: a_node(client, number), at_once=16)
                yield plane
        finally:
            await asyncio.to_thread(control_plane.stop)


async def served(client: HttpClient) -> bool:
    try:
        await client.list(TFJOBS)
    except ApiError:
        return False
    return True


def node_name(number: int) -> str:
    return f"node-{number:03}"


async def a_node(client: HttpClient, number: int) -> None:
    """Create a node with capacity for hundreds of pods, so that no job has to wait."""
    key = Key("", node_name(number))
    await client.create(NODES, {"metadata": {"name": key.name, "labels": {"kubernetes.io/hostname": key.name}}})
    status = {
        "capacity": {"cpu": "1024", "memory": "4096Gi", "pods": "1000"},
        "allocatable": {"cpu": "1024", "memory": "4096Gi", "pods": "1000"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Bench", "message": "", **heartbeat()}],
    }
    await client.patch(NODES, key, {"status": status}, subresource="status")
    # The API server taints a new node as not ready until a controller removes the taint.
    await client.patch(NODES, key, {"spec": {"taints": None}})


def heartbeat() -> Json:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"lastHeartbeatTime": now, "lastTransitionTime": now}


def job(namespace: str, name: str, workers: int) -> Json:
    """A job with one parameter server and some workers, of the size of a usual manifest."""

    def group(count: int) -> Json:
        container = {
            "name": "tensorflow",
            "image": "tensorflow/tensorflow:2.21.0",
            "command": ["python", "/opt/train.py", "--model-dir", "/models", "--batch-size", "64"],
            "env": [{"name": "TF_CPP_MIN_LOG_LEVEL", "value": "2"}, {"name": "OMP_NUM_THREADS", "value": "4"}],
            "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "2Gi"}},
        }
        return {"replicas": count, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": namespace, "labels": {"team": "vision", "experiment": "baseline"}},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 3},
            "tfReplicaSpecs": {"PS": group(1), "Worker": group(workers)},
        },
    }


class OperatorProcess:
    """A process of `tarragon operator`."""

    def __init__(self, process: Process, port: int, log: Path, session: aiohttp.ClientSession) -> None:
        self._process = process
        self._url = f"http://127.0.0.1:{port}"
        self._log = log
        self._session = session

    @property
    def pid(self) -> int:
        return self._process.pid

    async def is_ready(self) -> bool:
        if self._process.returncode is not None:
            raise RuntimeError(f"the operator has ended:\n{self._log.read_text()[-3000:]}")
        try:
            async with self._session.get(f"{self._url}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def ready(self) -> None:
        await until(self.is_ready, "the operator is ready", patience=120)

    async def metrics(self) -> Metrics:
        async with self._session.get(f"{self._url}/metrics") as answer:
            return Metrics(await answer.text())

    async def idle(self, patience: float = PATIENCE) -> None:
        """Return when the work queue is empty and the operator has made no call for a second."""
        written = -1.0

        async def rests() -> bool:
            nonlocal written
            metrics = await self.metrics()
            now, before = metrics.total("tarragon_api_call_seconds_count"), written
            written = now
            leases = metrics.total("tarragon_api_call_seconds_count", resource="leases.coordination.k8s.io")
            written = now - leases
            return written == before and metrics.total("tarragon_queue_depth") == 0

        await until(rests, "the operator rests", patience=patience, pause=1.0)

    def memory(self) -> Mapping[str, float]:
        """The memory in MiB by the names of smaps_rollup: `Pss`, `Rss`."""
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()[1:]
        return {name: int(rest.split()[0]) / 1024 for name, rest in (line.split(":", 1) for line in lines)}

    @property
    def peak(self) -> float:
        """The peak RSS in MiB."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

    def cpu(self) -> float:
        """The CPU seconds of all threads so far."""
        return cpu_of(self.pid)

    async def end(self) -> None:
        if self._process.returncode is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), 30)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def operator_process(plane: BenchCluster, *options: str) -> AsyncIterator[OperatorProcess]:
    """Start an operator, without waiting until it is ready."""
    port = 20_000 + random.Random().randrange(10_000)
    log = plane.control_plane.folder / f"operator-{port}.log"
    command = [
        *(sys.executable, "-m", "tarragon", "operator", "--kubeconfig", str(plane.control_plane.kubeconfig)),
        *("--listen", f"127.0.0.1:{port}", "--log-format", "json", *options),
    ]
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    async with aiohttp.ClientSession() as session:
        operator = OperatorProcess(process, port, log, session)
        try:
            yield operator
        finally:
            await operator.end()


class Metrics:
    """A response of /metrics."""

    def __init__(self, text: str) -> None:
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def total(self, name: str, **labels: str) -> float:
        """The sum of all samples with that name and these labels; they may have more labels."""
        return sum(
            sample.value
            for sample in self._samples
            if sample.name == name and all(sample.labels.get(label) == value for label, value in labels.items())
        )

    def calls(self) -> Mapping[tuple[str, str], int]:
        """The number of API calls by verb and resource, without leases."""
        found: dict[tuple[str, str], int] = {}
        for sample in self._samples:
            if sample.name == "tarragon_api_call_seconds_count" and "leases" not in sample.labels["resource"]:
                call = sample.labels["verb"], sample.labels["resource"]
                found[call] = found.get(call, 0) + int(sample.value)
        return found


def cpu_of(pid: int) -> float:
    """The CPU seconds of all threads of a process that runs."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def until(
    holds: Callable[[], Awaitable[bool]], what: str, *, patience: float = PATIENCE, pause: float = 0.05
) -> None:
    deadline = time.monotonic() + patience
    while not await holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {patience:g} s: {what}")
        await asyncio.sleep(pause)


async def each(things: Iterable[Any], do: Callable[[Any], Awaitable[Any]], at_once: int) -> None:
    """Call a coroutine for each of the things, with `at_once` calls in parallel."""
    waiting = iter(things)

    async def worker() -> None:
        for thing in waiting:
            await do(thing)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(worker())


def percentile(values: Sequence[float], percent: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


def offer_release(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses the release of the control plane."""
    parser.add_argument("--oldest", action="store_true", help=f"Kubernetes {OLDEST.name}, not {NEWEST.name}")


def chosen_release(options: argparse.Namespace) -> Release:
    return OLDEST if options.oldest else NEWEST


def run(measure: Callable[[], Awaitable[None]], seconds: float, release: Release = NEWEST) -> None:
    """Run a benchmark with a time limit. Without a control plane it only prints the reason."""
    reason = release.missing_reason()
    if reason is not None:
        print(f"not measured: {reason}")
        return
    asyncio.run(_with_timeout(measure, seconds))


async def _with_timeout(measure: Callable[[], Awaitable[None]], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        await measure()


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"
