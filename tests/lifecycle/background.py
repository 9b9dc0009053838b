"""Real background servers, each with its own home, and clients for them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from tarragon.base.clock import SystemClock
from tarragon.client.http.client import HttpClient
from tarragon.client.http.transport import RestConfig as Address
from tarragon.localcluster.daemon.background import Launch, ensure_running, stop
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import ServerInfo, is_locked

T = TypeVar("T")
CLOCK = SystemClock()
PROJECT = Path(__file__).parents[2]
PATIENCE = 60.0


def launch(*words: str, patience: float = PATIENCE) -> Launch:
    """How to start the server in tests/lifecycle/serve.py with these arguments."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command = (sys.executable, "-m", "tests.lifecycle.serve", *words)
    return Launch(command=command, environment=environment, start_timeout=patience)


@asynccontextmanager
async def a_home(folder: Path) -> AsyncIterator[Home]:
    """A home. After the test, its server and all pods are stopped."""
    home = Home(folder / "home")
    try:
        yield home
    finally:
        await stop(home, CLOCK, signal.SIGTERM)
        assert not is_locked(home)


async def up(home: Home, *words: str) -> ServerInfo:
    return await ensure_running(home, CLOCK, launch(*words))


async def killed(server: ServerInfo) -> None:
    os.kill(server.pid, signal.SIGKILL)
    await eventually(lambda: not server.is_running())


def client(home: Home, server: ServerInfo) -> HttpClient:
    address = Address(url=server.url, ca_data=home.ca.read_bytes(), token=home.read_token())
    return HttpClient(address, random.Random(1))


async def eventually(probe: Callable[[], T | None], seconds: float = PATIENCE) -> T:
    """Wait for the first result that is true."""
    deadline = time.monotonic() + seconds
    while not (result := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"has not come true within {seconds} s; the last was {result!r}")
        await asyncio.sleep(0.01)  # noqa: TID251 - another process tells nobody here when it has got somewhere
    return result
