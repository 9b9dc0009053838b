from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tarragon.base.clock import SystemClock
from tarragon.base.errors import TarragonError
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import (
    ServerInfo,
    is_locked,
    lock_home,
    process_start,
    read_server,
    write_server,
)

CLOCK = SystemClock()
SINCE = dt.datetime(2026, 11, 21, 10, tzinfo=dt.UTC)


def server(pid: int, born: str) -> ServerInfo:
    return ServerInfo(
        url="https://127.0.0.1:6443",
        pid=pid,
        process_start=born,
        started=SINCE,
        version="0.1.0",
        environment="/opt/env",
    )


def test_a_written_server_file_is_read_back(tmp_path: Path) -> None:
    written = server(1, "2")
    write_server(Home(tmp_path), written)

    assert read_server(Home(tmp_path)) == written


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"pid": "x"}', "\x00"])
def test_an_unreadable_server_file_is_ignored(tmp_path: Path, content: str) -> None:
    Home(tmp_path).server.write_text(content)

    assert read_server(Home(tmp_path)) is None


def test_a_server_file_without_an_environment_is_read_too(tmp_path: Path) -> None:
    write_server(Home(tmp_path), server(1, "2"))
    content = json.loads(Home(tmp_path).server.read_bytes())
    del content["environment"]
    Home(tmp_path).server.write_text(json.dumps(content))

    found = read_server(Home(tmp_path))

    assert found is not None
    assert found.environment == ""


def test_processes_with_the_same_pid_are_distinguished() -> None:
    assert server(os.getpid(), process_start(os.getpid())).is_running()
    assert not server(os.getpid(), "12").is_running()
    assert not server(os.getpid(), "").is_running()


def test_a_zombie_does_not_count_as_running() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        watched = server(process.pid, process_start(process.pid))
        assert watched.is_running()

        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not watched.is_running()


async def test_a_home_has_one_holder_whom_the_error_names(tmp_path: Path) -> None:
    home = Home(tmp_path)
    async with lock_home(home, CLOCK):
        write_server(home, server(os.getpid(), process_start(os.getpid())))
        with pytest.raises(TarragonError) as refused:
            async with lock_home(home, CLOCK):
                pytest.fail("two hold one home")

    assert f"already running in {tmp_path}" in refused.value.summary
    assert f"process {os.getpid()}, since 20" in refused.value.cause
    assert "at https://127.0.0.1:6443" in refused.value.cause
    assert "tarragon down" in refused.value.remedy


async def test_checking_the_lock_does_not_prevent_taking_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert not is_locked(home)
    async with lock_home(home, CLOCK):
        assert is_locked(home)
    assert not is_locked(home)

    async def look() -> None:
        for _ in range(200):
            is_locked(home)
            await CLOCK.sleep(0)

    looks = [asyncio.create_task(look()) for _ in range(20)]
    async with lock_home(home, CLOCK):
        pass
    await asyncio.gather(*looks)


async def test_a_killed_holder_loses_the_lock_and_its_server_file(tmp_path: Path) -> None:
    home = Home(tmp_path)
    script = f"""
import asyncio
from pathlib import Path
from tarragon.base.clock import SystemClock
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import lock_home

async def hold():
    async with lock_home(Home(Path({str(tmp_path)!r})), SystemClock()):
        print("held", flush=True)
        await asyncio.Event().wait()

asyncio.run(hold())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    write_server(home, server(process.pid, process_start(process.pid)))
    assert is_locked(home)
    process.kill()
    await process.wait()

    assert not is_locked(home)
    async with lock_home(home, CLOCK):
        assert read_server(home) is None
