"""The implementations of the port `Cluster` that the contract is tried on: a row each."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tarragon.base.clock import SystemClock
from tarragon.client.http.client import Http
from tarragon.client.http.connection import kubeconfig
from tarragon.client.leader_election import Claim, Lease, Terms
from tarragon.client.middleware.counted import Call, Counted
from tarragon.client.middleware.fenced import Fenced
from tarragon.client.port import Cluster
from tarragon.kube.meta import Key
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.registry.client import InProcess
from tests.localcluster_http.embedded import embedded

Implementation = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Cluster]]
"""From what the test has to a cluster that answers until the context ends."""


@asynccontextmanager
async def in_process(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    folder: Path = request.getfixturevalue("tmp_path")
    api = await Api.open(folder / "store.db", SystemClock())
    try:
        yield InProcess(api, manager="contract")
    finally:
        await api.close()


class Tally:
    """Counts calls and watches, and says nothing."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def called(self, call: Call) -> None:
        self.seen[call.verb] += 1

    def watch_began(self, resource: str) -> None:
        self.seen[resource] += 1

    def watch_brought(self, resource: str) -> None:
        self.seen[resource] += 1

    def watch_ended(self, resource: str, code: int) -> None:
        self.seen[f"{resource} {code}"] += 1


@asynccontextmanager
async def as_the_operator_has_it(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Behind what counts its calls, and behind what asks the lease before it writes."""
    clock = SystemClock()
    claim = Claim(key=Key("kube-system", "contract"), identity="contract", terms=Terms(duration=7200, deadline=3600))
    async with in_process(request) as cluster:
        lease = Lease(cluster, clock, claim, random.Random(1))
        await lease.acquire()
        yield Fenced(Counted(cluster, clock, Tally()), lease)


@asynccontextmanager
async def over_http(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    async with embedded(request.getfixturevalue("tmp_path")) as running, running.client() as client:
        yield client


@asynccontextmanager
async def real(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    access = kubeconfig({}, path=request.getfixturevalue("control_plane").kubeconfig)
    async with Http(access.server, random.Random(1)) as client:
        yield client


IMPLEMENTATIONS: dict[str, Implementation] = {
    "in process": in_process,
    "operator": as_the_operator_has_it,
    "http": over_http,
    "real": real,
}

EACH = [pytest.param(name, marks=[pytest.mark.real] if name == "real" else []) for name in IMPLEMENTATIONS]
"""As the parameters of a fixture."""
