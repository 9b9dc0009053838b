"""The implementations of the port `Cluster` that the contract is tried on: a row each."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tarragon.base.clock import SystemClock
from tarragon.cluster.access import kubeconfig
from tarragon.cluster.http import Http
from tarragon.cluster.port import Cluster
from tarragon.localcluster.api import Api
from tarragon.localcluster.client import InProcess
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


@asynccontextmanager
async def over_http(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    async with embedded(request.getfixturevalue("tmp_path")) as running, running.client() as client:
        yield client


@asynccontextmanager
async def real(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    access = kubeconfig({}, path=request.getfixturevalue("control_plane").kubeconfig)
    async with Http(access.server, random.Random(1)) as client:
        yield client


IMPLEMENTATIONS: dict[str, Implementation] = {"in process": in_process, "http": over_http, "real": real}

EACH = [pytest.param(name, marks=[pytest.mark.real] if name == "real" else []) for name in IMPLEMENTATIONS]
"""As the parameters of a fixture."""
