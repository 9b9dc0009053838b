"""By which name each program of ours stands in the audit log of an API server."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Sequence

import pytest
from aiohttp import web

from tarragon.client.http.user_agent import user_agent
from tests.cli.conftest import Shell
from tests.localcluster.apiserver.scripted_server import says, serving

CONFIG = {
    "clusters": [{"name": "c", "cluster": {"server": "SERVER"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "current-context": "c",
}


@pytest.mark.parametrize(
    ("words", "agent"),
    [
        (["operator", "--identity", "pod-1_0a1b", "--listen", "off"], user_agent("operator", "pod-1_0a1b")),
        (["operator", "--identity", "pod-1", "--no-leader-elect", "--listen", "off"], user_agent("operator", "pod-1")),
        (["node", "--name", "w-1"], user_agent("node", "w-1")),
        (["node", "--name", "w-1", "--hollow", "2"], user_agent("hollow-nodes", "w-1-0")),
        (["list"], user_agent("cli")),
    ],
    ids=lambda given: " ".join(given[:3]) if isinstance(given, list) else "",
)
async def test_every_program_says_what_it_is(shell: Shell, words: Sequence[str], agent: str) -> None:
    was_asked = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        was_asked.set()
        return await says({"items": [], "metadata": {"resourceVersion": "1"}})(request)

    async with serving(answer) as script:
        config = shell.folder / shell.file("config", json.dumps(CONFIG).replace("SERVER", script.url))
        program = await asyncio.create_subprocess_exec(
            *shell.command(*words, "--kubeconfig", str(config)),
            cwd=shell.folder,
            env=shell.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            await asyncio.wait_for(was_asked.wait(), 60)
        finally:
            if program.returncode is None:
                program.kill()
            await program.wait()

        assert {asked.headers["User-Agent"] for asked in script.asked} == {agent}
