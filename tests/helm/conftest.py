from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tarragon.client.errors import ApiError
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.client.port import Client
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from tarragon.kube.meta import Key
from tests.conftest import helm_program
from tests.localcluster.apiserver.embedded import embedded

CHART = Path(__file__).parent / "things"
KITES = "kites.helm.example.com"


@dataclass(frozen=True, slots=True)
class Helm:
    """A user's helm with a home of its own, in a namespace of its own, and the same cluster seen by its port."""

    cluster: Client
    namespace: str
    environment: dict[str, str]

    async def __call__(self, *arguments: str) -> str:
        """What it prints. It must succeed."""
        code, out, err = await self.run(*arguments)
        assert code == 0, f"helm {' '.join(arguments)} ended with {code}:\n{out}\n{err}"
        return out

    async def fails(self, *arguments: str) -> str:
        """What it complains. It must not succeed."""
        code, out, err = await self.run(*arguments)
        assert code != 0, f"helm {' '.join(arguments)} succeeded:\n{out}"
        return err

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        program = helm_program()
        assert program is not None
        process = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            "--namespace",
            self.namespace,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def json_output(self, *arguments: str) -> Any:
        return json.loads(await self(*arguments, "--output", "json"))


@asynccontextmanager
async def on_the_embedded_api(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[tuple[Client, Path]]:
    async with embedded(folder) as running, running.client() as client:
        yield client, running.kubeconfig(folder)


@asynccontextmanager
async def on_a_real_one(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[tuple[Client, Path]]:
    path: Path = request.getfixturevalue("control_plane").kubeconfig
    async with HttpClient(load_kubeconfig({}, path=path).rest_config, random.Random(1)) as client:
        yield client, path
        with contextlib.suppress(ApiError):  # most tests have made none
            await client.delete(CUSTOM_RESOURCE_DEFINITIONS, Key("", KITES))


SITES = {"embedded": on_the_embedded_api, "real": on_a_real_one}


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def helm(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Helm]:
    home = tmp_path / "user"
    home.mkdir()
    async with SITES[request.param](request, tmp_path) as (cluster, config):
        namespace = f"helm-{uuid.uuid4().hex[:12]}"
        environment = {"HOME": str(home), "KUBECONFIG": str(config), "PATH": os.environ["PATH"]}
        yield Helm(cluster, namespace, environment)
        with contextlib.suppress(ApiError):
            await cluster.delete(NAMESPACES, Key("", namespace))
