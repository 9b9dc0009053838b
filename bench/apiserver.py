#!/usr/bin/env python3
"""Throughput of the embedded API server over HTTPS (durable writes, lists, watches), compared with another server.

    python bench/apiserver.py [--objects N] [--clients N] [--against KUBECONFIG]

The server runs in a separate process, on this file system, with synchronous commits. `--against` is a kubeconfig of
another server, such as a real kube-apiserver, to which the same client makes the same requests.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gc
import os
import random
import resource
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tarragon.base.clock import SystemClock  # noqa: E402
from tarragon.client.errors import NotFound  # noqa: E402
from tarragon.client.http.client import HttpClient  # noqa: E402
from tarragon.client.http.transport import RestConfig  # noqa: E402
from tarragon.client.port import DeleteOptions, Selector  # noqa: E402
from tarragon.kube.core import NAMESPACES, PODS  # noqa: E402
from tarragon.kube.meta import Key  # noqa: E402
from tarragon.localcluster.apiserver.apiserver import ApiServer, ServerConfig  # noqa: E402
from tarragon.localcluster.daemon.certificates import ensure_certificates  # noqa: E402
from tarragon.localcluster.home.home import Home  # noqa: E402
from tarragon.localcluster.registry.api import Api  # noqa: E402

TOKEN = "bench"  # noqa: S105 - of a server that lives as long as this program
NAMESPACE = "bench"


@dataclass(frozen=True, slots=True)
class Row:
    """The cost of one step of the benchmark. `server_cpu` is None for a server that is not ours."""

    what: str
    count: int
    seconds: float
    client_cpu: float
    server_cpu: float | None

    @property
    def rate(self) -> float:
        return self.count / self.seconds


def pod(number: int) -> dict[str, Any]:
    """A pod of about 3 kB, like the pods of training jobs."""
    return {
        "metadata": {
            "name": f"pod-{number:06}",
            "namespace": NAMESPACE,
            "labels": {"job": f"job-{number // 8}", "replica": str(number % 8)},
            "annotations": {"note": "x" * 1500},
        },
        "spec": {
            "nodeName": "nowhere",
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "tensorflow",
                    "image": "tensorflow/tensorflow:2.21",
                    "command": ["python", "/train.py"],
                    "env": [{"name": f"VARIABLE_{i}", "value": "y" * 40} for i in range(16)],
                    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
                }
            ],
        },
    }


class Bench:
    """The steps of the benchmark, which run one after the other through one client."""

    def __init__(self, http: HttpClient, clients: int, objects: int, server_cpu: Callable[[], float | None]) -> None:
        self._http = http
        self._clients = clients
        self._objects = objects
        self._server_cpu = server_cpu

    async def run(self) -> list[Row]:
        await self._ensure_namespace()
        start = (await self._http.list(PODS, Selector(NAMESPACE))).resource_version
        return [
            await self._each("create a pod", lambda n: self._http.create(PODS, pod(n))),
            await self._each(
                "patch its status",
                lambda n: self._http.patch(PODS, self._key(n), {"status": {"phase": "Running"}}, subresource="status"),
            ),
            await self._each("read it", lambda n: self._http.get(PODS, self._key(n))),
            await self._measured("list all (pods)", self._objects, self._list),
            await self._measured("watch from before (events)", 2 * self._objects, lambda: self._watch(start)),
            await self._each(
                "delete it", lambda n: self._http.delete(PODS, self._key(n), DeleteOptions(grace_period_seconds=0))
            ),
        ]

    async def _ensure_namespace(self) -> None:
        try:
            await self._http.get(NAMESPACES, Key("", NAMESPACE))
        except NotFound:
            await self._http.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})

    def _key(self, number: int) -> Key:
        return Key(NAMESPACE, f"pod-{number:06}")

    async def _each(self, what: str, call: Callable[[int], Awaitable[object]]) -> Row:
        numbers = iter(range(self._objects))

        async def client() -> None:
            for number in numbers:
                await call(number)

        async def all_clients() -> None:
            await asyncio.gather(*(client() for _ in range(self._clients)))

        return await self._measured(what, self._objects, all_clients)

    async def _list(self) -> None:
        listing = await self._http.list(PODS, Selector(NAMESPACE))
        assert len(listing.items) == self._objects

    async def _watch(self, since: str) -> None:
        count = 0
        async for event in self._http.watch(PODS, Selector(NAMESPACE), since):
            count += event.type != "BOOKMARK"
            if count == 2 * self._objects:
                return

    async def _measured(self, what: str, count: int, step: Callable[[], Awaitable[None]]) -> Row:
        cpu, server, began = own_cpu(), self._server_cpu(), time.perf_counter()
        await step()
        seconds = time.perf_counter() - began
        spent = self._server_cpu()
        return Row(what, count, seconds, own_cpu() - cpu, None if server is None or spent is None else spent - server)


def own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_of(pid: int) -> float:
    """The CPU seconds of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ----------------------------------------------------------------------------------------------------- the two servers


async def serve(folder: Path) -> None:
    """Serve in the child process until its standard input ends."""
    clock = SystemClock()
    home = Home(folder)
    home.prepare()
    files = ensure_certificates(home, clock.now())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files.chain, files.key)
    api = await Api.open(home.store_path, clock)
    server = ApiServer(api, clock, ServerConfig(token=TOKEN, tls=tls))
    await server.start()
    gc.freeze()  # as the background server does
    gc.set_threshold(50_000, 20, 50)
    print(server.url, files.authority, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop()
    await api.close()


@asynccontextmanager
async def embedded() -> AsyncIterator[tuple[RestConfig, Callable[[], float]]]:
    # Not in /tmp, which may be in memory, where nothing would be durable.
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=ROOT) as folder:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            "--serve",
            folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        url, authority = (await process.stdout.readline()).decode().split()
        try:
            yield RestConfig(url=url, ca_data=read(authority), token=TOKEN), lambda: cpu_of(process.pid)
        finally:
            process.stdin.close()
            await process.wait()


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def server_of(kubeconfig: Path) -> RestConfig:
    config = yaml.safe_load(kubeconfig.read_text())
    context = next(each["context"] for each in config["contexts"] if each["name"] == config["current-context"])
    cluster = next(each["cluster"] for each in config["clusters"] if each["name"] == context["cluster"])
    user = next(each["user"] for each in config["users"] if each["name"] == context["user"])
    return RestConfig(
        url=cluster["server"],
        ca_data=pem(cluster, "certificate-authority"),
        token=user.get("token", ""),
        client_certificate=pem(user, "client-certificate"),
        client_key=pem(user, "client-key"),
        skip_tls_verify=bool(cluster.get("insecure-skip-tls-verify")),
    )


def pem(part: Mapping[str, Any], name: str) -> bytes:
    if f"{name}-data" in part:
        return base64.b64decode(part[f"{name}-data"])
    return read(part[name]) if name in part else b""


async def measure(server: RestConfig, options: argparse.Namespace, cpu: Callable[[], float | None]) -> list[Row]:
    async with HttpClient(server, random.Random(1)) as http:
        return await Bench(http, options.clients, options.objects, cpu).run()


async def bench(options: argparse.Namespace) -> None:
    async with embedded() as (server, cpu):
        ours = await measure(server, options, cpu)
    other = await measure(server_of(options.against), options, lambda: None) if options.against else []
    show(options, ours, other)


def show(options: argparse.Namespace, ours: Sequence[Row], other: Sequence[Row]) -> None:
    title = f"{options.objects} pods of 3 kB, {options.clients} clients, HTTPS"
    table = Table("step", "a second", "wall s", "client CPU s", "server CPU s", "us of server CPU each", title=title)
    if other:
        table.add_column("the other, a second")
        table.add_column("ratio")
    for column in table.columns[1:]:
        column.justify = "right"
    for index, row in enumerate(ours):
        server_cpu = row.server_cpu or 0.0
        cells = [
            row.what,
            f"{row.rate:,.0f}",
            f"{row.seconds:.2f}",
            f"{row.client_cpu:.2f}",
            f"{server_cpu:.2f}",
            f"{server_cpu / row.count * 1e6:.0f}",
        ]
        if other:
            cells += [f"{other[index].rate:,.0f}", f"{row.rate / other[index].rate:.2f}"]
        table.add_row(*cells)
    Console(width=max(120, Console().width)).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--objects", type=int, default=4000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--against", type=Path, metavar="KUBECONFIG")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    asyncio.run(serve(options.serve) if options.serve else bench(options))


if __name__ == "__main__":
    main()
