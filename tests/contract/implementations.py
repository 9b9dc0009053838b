"""The implementations of the port `Client` that the contract is tried on: a row each."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tarragon.base.clock import SystemClock
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.client.leader_election import LeaderElectionConfig, LeaderElector, LeaseLock
from tarragon.client.middleware.fenced import FencedClient
from tarragon.client.middleware.instrumented import CallResult, InstrumentedClient
from tarragon.client.port import Client
from tarragon.kube.meta import Key
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.registry.client import InProcessCluster
from tests.localcluster.apiserver.embedded import embedded

Implementation = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Client]]
"""From what the test has to a cluster that answers until the context ends."""


@asynccontextmanager
async def in_process(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    folder: Path = request.getfixturevalue("tmp_path")
    api = await Api.open(folder / "store.db", SystemClock())
    try:
        yield InProcessCluster(api, manager="contract")
    finally:
        await api.close()


class Tally:
    """Counts calls and watches, and says nothing."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def on_call(self, call: CallResult) -> None:
        self.seen[call.verb] += 1

    def on_watch_started(self, resource: str) -> None:
        self.seen[resource] += 1

    def on_watch_event(self, resource: str) -> None:
        self.seen[resource] += 1

    def on_watch_ended(self, resource: str, code: int) -> None:
        self.seen[f"{resource} {code}"] += 1


@asynccontextmanager
async def as_the_operator_has_it(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """Behind what counts its calls, and behind what asks the lease before it writes."""
    clock = SystemClock()
    claim = LeaseLock(
        key=Key("kube-system", "contract"),
        identity="contract",
        config=LeaderElectionConfig(lease_duration=7200, renew_deadline=3600),
    )
    async with in_process(request) as cluster:
        lease = LeaderElector(cluster, clock, claim, random.Random(1))
        await lease.acquire()
        yield FencedClient(InstrumentedClient(cluster, clock, Tally()), lease)


@asynccontextmanager
async def over_http(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with embedded(request.getfixturevalue("tmp_path")) as running, running.client() as client:
        yield client


@asynccontextmanager
async def real(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    access = load_kubeconfig({}, path=request.getfixturevalue("control_plane").kubeconfig)
    async with HttpClient(access.rest_config, random.Random(1)) as client:
        yield client


IMPLEMENTATIONS: dict[str, Implementation] = {
    "in process": in_process,
    "operator": as_the_operator_has_it,
    "http": over_http,
    "real": real,
}

EACH = [pytest.param(name, marks=[pytest.mark.real] if name == "real" else []) for name in IMPLEMENTATIONS]
"""As the parameters of a fixture."""
