from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tarragon.base.clock import FakeClock
from tarragon.localcluster.daemon.log_rotation import (
    MAX_BYTES,
    MAX_BYTES_AT_START,
    last_lines,
    rotate_at_start,
    rotate_for_ever,
)
from tests.client.scripted import settle
from tests.conftest import others_can_reach


async def test_a_large_log_is_rotated_while_it_is_written(tmp_path: Path) -> None:
    log, clock = tmp_path / "daemon.log", FakeClock()
    task = asyncio.create_task(rotate_for_ever(log, clock))
    await settle(clock)
    with log.open("ab", buffering=0) as writer:
        writer.write(b"x" * MAX_BYTES)
        clock.advance(61)
        await settle(clock)
        assert log.stat().st_size == MAX_BYTES

        writer.write(b"y")
        clock.advance(61)
        await settle(clock)
        writer.write(b"new words\n")

    assert log.read_bytes() == b"new words\n"
    assert (tmp_path / "daemon.log.1").read_bytes().endswith(b"xy")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_rotated_log_is_readable_by_its_owner_only(tmp_path: Path, open_umask: None) -> None:
    log, clock = tmp_path / "daemon.log", FakeClock()
    log.touch(0o600)
    os.truncate(log, MAX_BYTES + 1)
    task = asyncio.create_task(rotate_for_ever(log, clock))
    await settle(clock)
    clock.advance(61)
    await settle(clock)

    assert (tmp_path / "daemon.log.1").stat().st_size == MAX_BYTES + 1
    assert others_can_reach(tmp_path) == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_only_a_large_log_is_rotated_when_a_server_starts(tmp_path: Path) -> None:
    log = tmp_path / "daemon.log"
    rotate_at_start(log)
    log.write_bytes(b"x" * MAX_BYTES_AT_START)
    rotate_at_start(log)
    assert log.exists()

    log.write_bytes(b"x" * (MAX_BYTES_AT_START + 1))
    rotate_at_start(log)
    assert not log.exists()
    assert (tmp_path / "daemon.log.1").exists()


def test_the_last_lines_are_those_of_this_attempt(tmp_path: Path) -> None:
    log = tmp_path / "daemon.log"
    assert last_lines(log, 0) == ""
    log.write_text("before\n")
    since = log.stat().st_size
    with log.open("a") as writer:
        writer.write("".join(f"line {number}\n\n" for number in range(100)))

    assert last_lines(log, since).splitlines() == [f"line {number}" for number in range(85, 100)]
    assert last_lines(log, log.stat().st_size) == ""
