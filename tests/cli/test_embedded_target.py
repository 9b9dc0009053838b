"""Reading from the local cluster when its server does not answer, or ends just then."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import venv
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tarragon import __version__
from tarragon.base.clock import SystemClock
from tarragon.base.errors import TarragonError
from tarragon.cli.targets.embedded import EmbeddedTarget
from tarragon.client.errors import Unauthorized
from tarragon.kube.core import PODS
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import ServerInfo, process_start, write_server
from tarragon.localcluster.kubelet.images.images import current_environment
from tests.cli.conftest import Shell
from tests.cli.manifests import worker
from tests.localcluster.apiserver.embedded import server_tls
from tests.localcluster.apiserver.scripted_server import Answer, Script, never, says, serving

TAB = """
import sys
from tarragon.cli.main import main
from tarragon.cli.targets import completion
completion.LOCAL_TIMEOUT = 1.0
sys.argv[0] = "tarragon"
main()
"""


@asynccontextmanager
async def announced(home: Home, answer: Answer, environment: Path | None = None) -> AsyncIterator[Script]:
    """A server that the home names, which answers so. Its process is that of the tests."""
    home.prepare()
    clock = SystemClock()
    pid = os.getpid()
    async with serving(answer, server_tls(home, clock)) as script:
        server = ServerInfo(
            url=script.url,
            pid=pid,
            process_start=process_start(pid),
            started=clock.now(),
            version="test" if environment is None else __version__,
            environment=str(environment or ""),
        )
        write_server(home, server)
        try:
            yield script
        finally:
            home.server.unlink(missing_ok=True)  # before anybody stops that process


async def pods(home: Home, seconds: float = 60.0) -> int:
    """Counts the pods, in a thread: the server is in this one."""

    async def counted() -> int:
        async with EmbeddedTarget(home, "", time.monotonic() + seconds).reading() as reader:
            return len((await reader.list(PODS)).items)

    return await asyncio.to_thread(lambda: asyncio.run(counted()))


async def test_a_server_that_hangs_is_not_taken_for_one_that_does_not_run(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    async with announced(home, never):
        with pytest.raises(TarragonError) as caught:
            await pods(home, seconds=0.5)

    assert caught.value.summary == f"the local cluster in {home.folder} does not answer"
    assert f"its process {os.getpid()} runs, but https://" in caught.value.cause
    assert "did not respond in time" in caught.value.cause
    assert "`tarragon down` stops it" in caught.value.remedy


async def test_what_a_server_refuses_is_said(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    refused = {"kind": "Status", "status": "Failure", "code": 401, "reason": "Unauthorized", "message": "who is it?"}
    async with announced(home, says(refused, 401)):
        with pytest.raises(Unauthorized, match="who is it"):
            await pods(home)


async def test_a_server_that_ends_while_it_is_asked_does_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path / "home")

    async def ends(request: web.BaseRequest) -> web.StreamResponse:
        home.server.unlink()
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async with announced(home, ends):
        assert await pods(home) == 0

    assert "No local cluster exists" in capsys.readouterr().err


async def test_tab_waits_no_longer_for_a_slow_server_than_it_may(tmp_path: Path) -> None:
    shell = Shell(folder=tmp_path, home=tmp_path / "home")

    async def only_its_version(request: web.BaseRequest) -> web.StreamResponse:
        return await (says({}) if request.path == "/version" else never)(request)

    words = ["tarragon", "logs", "digits", "--replica", ""]
    asked = {"_TARRAGON_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}

    def tab() -> subprocess.CompletedProcess[bytes]:
        # Less than the thirty seconds that a command waits for an answer.
        command, environment = [sys.executable, "-P", "-c", TAB], {**shell.environment(), **asked}
        return subprocess.run(command, env=environment, capture_output=True, check=False, timeout=28)

    async with announced(Home(shell.home), only_its_version):
        ended = await asyncio.to_thread(tab)

    assert (ended.stdout.strip(), ended.stderr) == (b"", b"")


async def test_a_cluster_of_another_installation_is_named_with_the_environment_of_both(tmp_path: Path) -> None:
    shell = Shell(folder=tmp_path, home=tmp_path / "home")
    (tmp_path / "job.yaml").write_text(worker("digits", "print(1)"))
    (tmp_path / "train.py").write_text("import tensorflow")
    other, own = tmp_path / "other", current_environment().folder
    venv.create(other, symlinks=True)
    async with announced(Home(shell.home), says({}), other):
        checked = await asyncio.to_thread(shell, "check")
        ran = await asyncio.to_thread(shell, "run", "job.yaml", "--dry-run")
        mapped = await asyncio.to_thread(shell, "run", "job.yaml", "--dry-run", "--image-env", f"python={own}")
        named = await asyncio.to_thread(shell, "run", "job.yaml", "--dry-run", "--image-env", f"python={other}")
        lacking = await asyncio.to_thread(shell, "run", "train.py", "--dry-run")

    assert f"of another installation: replicas run in {other}, not in {own}\n" in checked.out
    assert f"every image maps to {other}\n" in checked.out
    assert f"TensorFlow  not installed in {other}; only scripts that import it need it\n" in checked.out
    assert ran.err.startswith(f"warning: the image python:3 runs in {other}, not in {own}: ")
    assert "`tarragon down`" in ran.err
    assert "--image-env python:3=FOLDER" in ran.err
    assert "started the local cluster" not in mapped.err + named.err
    assert f"warning: TensorFlow is not installed in {other}, which runs the image " in lacking.err


async def test_a_link_to_the_own_environment_is_no_other_installation(tmp_path: Path) -> None:
    shell = Shell(folder=tmp_path, home=tmp_path / "home")
    (tmp_path / "job.yaml").write_text(worker("digits", "print(1)"))
    (tmp_path / "link").symlink_to(current_environment().folder)
    async with announced(Home(shell.home), says({}), tmp_path / "link"):
        checked = await asyncio.to_thread(shell, "check")
        ran = await asyncio.to_thread(shell, "run", "job.yaml", "--dry-run")

    assert "another installation" not in checked.out
    assert "started the local cluster" not in ran.err


async def test_an_environment_that_is_gone_is_an_error_and_has_no_libraries(tmp_path: Path) -> None:
    shell = Shell(folder=tmp_path, home=tmp_path / "home")
    async with announced(Home(shell.home), says({}), tmp_path / "gone"):
        checked = await asyncio.to_thread(shell, "check")

    assert f"{tmp_path / 'gone'}, the environment of replicas, has no Python any more" in checked.out
    assert "unknown version" not in checked.out
