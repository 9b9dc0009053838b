"""The implementations of the port `Cluster` that the contract is tried on: a row each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from tarragon.base.clock import SystemClock
from tarragon.cluster.port import Cluster
from tarragon.localcluster.api import Api
from tarragon.localcluster.client import InProcess
from tests.localcluster_http.embedded import embedded

Implementation = Callable[[Path], AbstractAsyncContextManager[Cluster]]
"""From an empty folder to a cluster that answers until the context ends."""


@asynccontextmanager
async def in_process(folder: Path) -> AsyncIterator[Cluster]:
    api = await Api.open(folder / "store.db", SystemClock())
    try:
        yield InProcess(api, manager="contract")
    finally:
        await api.close()


@asynccontextmanager
async def over_http(folder: Path) -> AsyncIterator[Cluster]:
    async with embedded(folder) as running, running.client() as client:
        yield client


IMPLEMENTATIONS: dict[str, Implementation] = {"in process": in_process, "http": over_http}
