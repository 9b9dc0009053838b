from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.localcluster.apiserver.embedded import Embedded, embedded


@dataclass
class Kubectl:
    """The user's own kubectl, with a home of its own and no other cluster in sight."""

    environment: dict[str, str]
    folder: Path

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        """What it prints. It must succeed."""
        code, out, err = await self.run(*arguments, stdin=stdin)
        assert code == 0, f"kubectl {' '.join(arguments)} ended with {code}:\n{out}\n{err}"
        return out

    async def fails(self, *arguments: str, stdin: str = "") -> str:
        """What it complains. It must not succeed."""
        code, out, err = await self.run(*arguments, stdin=stdin)
        assert code != 0, f"kubectl {' '.join(arguments)} succeeded:\n{out}"
        return err

    async def run(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        process = await self.start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 60)
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "kubectl",
            *arguments,
            env=self.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    def rows(self, out: str) -> list[list[str]]:
        """A printed table, word by word."""
        return [line.split() for line in out.splitlines()]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with embedded(tmp_path) as running:
        await running.add_widgets()
        yield running


@pytest.fixture
def kubectl(cluster: Embedded, tmp_path: Path) -> Kubectl:
    home = tmp_path / "user"
    home.mkdir()
    where = shutil.which("kubectl")
    assert where is not None
    return Kubectl(
        {
            "HOME": str(home),
            "KUBECONFIG": str(cluster.kubeconfig(home)),
            "PATH": f"{Path(where).parent}:{os.environ['PATH']}",
            "EDITOR": "sed -i -e s/red/blue/",
        },
        home,
    )
