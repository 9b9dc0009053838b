#!/usr/bin/env python3
"""What a write of a job costs kube-apiserver, by the way it is written and by what the CRD is like.

    python bench/write_cost.py [--oldest] [--rounds N]

CPU milliseconds of the API server for each write, with nobody watching. Copies of TFJob's CRD in other groups:

- `as shipped`: five versions; `status.tarragon` is atomic.
- `not atomic`: the managers of each field in `status.tarragon` are tracked.
- `v1 alone`: one version. The server decodes what is written twice for each version.
- `v1, no schema`: and nothing is validated.

Rounds alternate between them. The least of the rounds is shown, as other users of the machine only add to it.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench.support.control_plane import (  # noqa: E402
    TFJOBS,
    BenchCluster,
    Json,
    bench_cluster,
    chosen_release,
    each,
    job,
    load,
    offer_release,
    run,
    until,
)
from tarragon.frameworks.tensorflow.framework import TENSORFLOW  # noqa: E402
from tarragon.kube.codec import encode  # noqa: E402
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS  # noqa: E402
from tools.controlplane import Release  # noqa: E402

WRITES = 60
AT_ONCE = 4
QUIET = 0.05
READY = "/status/tarragon/ready"
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
STATUS: Json = {
    "conditions": [
        {"type": kind, "status": "True", "reason": kind, "message": kind, "lastTransitionTime": "2026-11-27T00:00:00Z"}
        for kind in ("Admitted", "Created")
    ],
    "replicaStatuses": {"PS": {"active": 0}, "Worker": {"active": 0}},
    "tarragon": {
        "generation": "kubeflow.org/v1",
        "observedGeneration": 1,
        "state": "Starting",
        "ready": "0/5",
        "restarts": {"total": 0},
        "admission": {"admitted": "2026-11-27T00:00:00Z", "size": {"PS": 1, "Worker": 4}, "nodes": {"PS": {"n": "0"}}},
        "accepted": {"replicas": {"PS": {"wish": 1}, "Worker": {"wish": 4}}, "cleanPods": "Running"},
    },
}


def as_shipped(_: list[Json]) -> None:
    """Change nothing."""


def not_atomic(versions: list[Json]) -> None:
    for version in versions:
        del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["tarragon"][
            "x-kubernetes-map-type"
        ]


def v1_alone(versions: list[Json]) -> None:
    versions[:] = [version for version in versions if version["name"] == "v1"]


def no_schema(versions: list[Json]) -> None:
    v1_alone(versions)
    versions[0]["schema"] = {"openAPIV3Schema": OPEN}
    versions[0].pop("selectableFields", None)


VARIANTS: Mapping[str, Callable[[list[Json]], None]] = {
    "as shipped": as_shipped,
    "not atomic": not_atomic,
    "v1 alone": v1_alone,
    "v1, no schema": no_schema,
}


def group_of(variant: str) -> str:
    return f"{variant.replace(',', '').replace(' ', '-')}.bench.dev"


class Writer:
    """Sends requests to one server, and tells what they cost it."""

    def __init__(self, plane: BenchCluster, session: aiohttp.ClientSession) -> None:
        self._plane = plane
        self._session = session
        self.costs: dict[tuple[str, str], list[float]] = {}

    async def send(self, method: str, path: str, kind: str, body: Any) -> None:
        url = self._plane.control_plane.url + path
        async with self._session.request(method, url, data=encode(body), headers={"Content-Type": kind}) as answer:
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {await answer.text()}")
            await answer.read()

    async def cost(self, variant: str, what: str, write: Callable[[int], Awaitable[None]]) -> None:
        before = self._plane.server_cpu()
        await each(range(WRITES), write, AT_ONCE)
        await asyncio.sleep(0.1)  # what the server does with a write after its answer
        self.costs.setdefault((what, variant), []).append((self._plane.server_cpu() - before) / WRITES * 1000)

    async def quiet(self) -> None:
        """Return when the server rests: after a new CRD it builds its OpenAPI documents for seconds."""
        seen = -1.0

        async def rests() -> bool:
            nonlocal seen
            before, seen = seen, self._plane.server_cpu()
            return before >= 0 and seen - before < QUIET

        await until(rests, "the API server rests", patience=120, pause=1.0)


class Jobs:
    """The jobs that one round writes of one variant, by their number."""

    def __init__(self, writer: Writer, variant: str, number: int) -> None:
        self._writer = writer
        self._number = number
        self._version = f"{group_of(variant)}/v1"
        self._path = f"/apis/{self._version}/namespaces/bench/tfjobs"

    async def create(self, index: int) -> None:
        body = {**job("bench", self._name(index), 4), "apiVersion": self._version}
        await self._writer.send("POST", self._path, "application/json", body)

    async def write_status(self, index: int) -> None:
        await self._patch(index, "merge-patch+json", {"status": STATUS})

    async def merge_field(self, index: int) -> None:
        await self._patch(index, "merge-patch+json", {"status": {"tarragon": {"ready": "1/5"}}})

    async def patch_field(self, index: int) -> None:
        await self._patch(index, "json-patch+json", [{"op": "replace", "path": READY, "value": "2/5"}])

    async def apply_status(self, index: int) -> None:
        status = {**STATUS, "tarragon": {**STATUS["tarragon"], "ready": "3/5"}}
        body = {"apiVersion": self._version, "kind": TFJOBS.kind, "metadata": {"name": self._name(index)}}
        await self._patch(index, "apply-patch+yaml", {**body, "status": status}, "?fieldManager=bench&force=true")

    async def _patch(self, index: int, kind: str, body: Any, query: str = "") -> None:
        path = f"{self._path}/{self._name(index)}/status{query}"
        await self._writer.send("PATCH", path, f"application/{kind}", body)

    def _name(self, index: int) -> str:
        return f"job-{self._number}-{index:05}"


async def one_round(writer: Writer, number: int) -> None:
    for variant in VARIANTS:
        jobs = Jobs(writer, variant, number)
        await writer.cost(variant, "create the job", jobs.create)
        await writer.cost(variant, "its whole status, merge patch", jobs.write_status)
        await writer.cost(variant, "one field, merge patch", jobs.merge_field)
        await writer.cost(variant, "one field, JSON patch", jobs.patch_field)
        await writer.cost(variant, "its whole status, server-side apply", jobs.apply_status)


async def measure(release: Release, rounds: int) -> None:
    async with bench_cluster(release) as plane:
        await plane.namespace("bench")
        for variant, change in VARIANTS.items():
            crd = copy.deepcopy(TENSORFLOW.crd())
            spec = crd["spec"]
            spec["group"] = group_of(variant)
            spec["names"] = {key: spec["names"][key] for key in ("kind", "listKind", "plural", "singular")}
            change(spec["versions"])
            metadata = {"name": f"tfjobs.{group_of(variant)}"}
            await plane.client.create(CUSTOM_RESOURCE_DEFINITIONS, {**crd, "metadata": metadata})
        folder = plane.control_plane.folder
        tls = ssl.create_default_context(cafile=f"{folder}/ca.crt")
        tls.load_cert_chain(f"{folder}/admin.crt", f"{folder}/admin.key")
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE, ssl=tls)) as session:
            writer = Writer(plane, session)
            await asyncio.sleep(5.0)
            await writer.quiet()
            began = time.monotonic()
            for number in range(rounds):
                await one_round(writer, number)
    title = f"CPU ms of the API server, Kubernetes {release.name}, {load()}, {time.monotonic() - began:.0f} s"
    table = Table("", *VARIANTS, title=title)
    for what in dict.fromkeys(what for what, _ in writer.costs):
        table.add_row(what, *(f"{min(writer.costs[what, variant]):.1f}" for variant in VARIANTS))
    Console(width=max(110, Console().width)).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    offer_release(parser)
    options = parser.parse_args()
    release = chosen_release(options)
    run(lambda: measure(release, options.rounds), 900, release)


if __name__ == "__main__":
    main()
