"""Clusters in which pods really run: the embedded one, and a real control plane with this machine as a node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tarragon.base.clock import SystemClock
from tarragon.client.errors import NotFound
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.kube.core import NODES
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.kubelet import end_all_containers
from tests.conftest import ROOT
from tools.controlplane import ControlPlane


@asynccontextmanager
async def running(words: Sequence[str], home: Path) -> AsyncIterator[None]:
    """`tarragon WORDS`, from its line `ready` on, in a home of its own."""
    environment = {"TARRAGON_HOME": str(home), "PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT)}
    with (home / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tarragon", *words), stdout=asyncio.subprocess.PIPE, stderr=log, env=environment
        )
    assert process.stdout
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        assert line.startswith(b"ready"), (home / "log").read_text()
        yield
    finally:
        process.terminate()
        await process.communicate()


@asynccontextmanager
async def on_the_embedded_cluster(home: Path) -> AsyncIterator[tuple[Path, str]]:
    async with running(["up"], home):
        yield home / "kubeconfig", "local"
    await end_all_containers(home / "node", SystemClock())


@asynccontextmanager
async def on_a_real_one(plane: ControlPlane, home: Path) -> AsyncIterator[tuple[Path, str]]:
    node = f"helm-{uuid.uuid4().hex[:6]}"
    async with running(["node", "--kubeconfig", str(plane.kubeconfig), "--name", node], home):
        yield plane.kubeconfig, node
    for folder in nodes_in(home):
        await end_all_containers(folder, SystemClock())
    async with HttpClient(load_kubeconfig({}, path=plane.kubeconfig).rest_config, random.Random(1)) as client:
        with contextlib.suppress(NotFound):
            await client.delete(NODES, Key("", node))


def nodes_in(home: Path) -> list[Path]:
    return [folder for folder in home.glob("clusters/*/[!_]*") if folder.is_dir()]
