"""The server of a home: one process at a time holds the lock, and `server.json` tells clients where it is."""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.kube.codec import format_time, parse_time
from tarragon.localcluster.home.home import Home, unusable_home_error, write_private_file

_CHECK_SECONDS = 2.0
_MAX_ATTEMPTS = 20
_ATTEMPT_SECONDS = 0.05
"""Pause between attempts to take the lock. `is_locked` holds it for a moment too, so one attempt is not enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """A process that serves a home. `process_start` distinguishes it from a later process with the same pid.

    `environment` is the folder of the Python environment that runs it: containers without another one run there, too.
    """

    url: str
    pid: int
    process_start: str
    started: dt.datetime
    version: str
    environment: str = ""

    def is_running(self) -> bool:
        """Whether this process still runs."""
        return bool(self.process_start) and process_start(self.pid) == self.process_start


def process_start(pid: int) -> str:
    """The start time of a process in a format of the system; empty if no process has that pid."""
    if Path("/proc/self/stat").exists():
        with suppress(OSError):
            # The command name is in parentheses and may contain any character, even parentheses.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return "" if fields[0] in "ZX" else fields[19]
        return ""
    # macOS and the BSDs
    result = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S607
    return result.stdout.strip()


def read_server(home: Home) -> ServerInfo | None:
    """The server in `server.json`, which may be dead. None if the file is missing or cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        content: dict[str, Any] = json.loads(home.server.read_bytes())
        return ServerInfo(
            url=str(content["url"]),
            pid=int(content["pid"]),
            process_start=str(content["born"]),
            started=parse_time(content["started"]),
            version=str(content["version"]),
            environment=str(content.get("environment", "")),
        )
    return None


def write_server(home: Home, server: ServerInfo) -> None:
    """Publish the server to clients. Raises OSError."""
    content = {
        "url": server.url,
        "pid": server.pid,
        "born": server.process_start,
        "started": format_time(server.started),
        "version": server.version,
        "environment": server.environment,
    }
    write_private_file(home.server, json.dumps(content).encode())


def is_locked(home: Home) -> bool:
    """Whether a running process holds the lock of the home. The lock ends with its process, however that dies."""
    try:
        descriptor = os.open(home.lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class HomeLock:
    """The lock of a home, held by this process."""

    def __init__(self, home: Home, descriptor: int) -> None:
        self._lock = home.lock
        self._descriptor = descriptor

    async def until_lost(self, clock: Clock) -> None:
        """Return when the lock file was removed or replaced, because somebody has removed or replaced the home."""
        while self._is_intact():
            await clock.sleep(_CHECK_SECONDS)

    def _is_intact(self) -> bool:
        try:
            return os.path.samestat(self._lock.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False
        except OSError:
            return True  # an I/O error is no reason to stop the server


@asynccontextmanager
async def lock_home(home: Home, clock: Clock) -> AsyncIterator[HomeLock]:
    """Hold the lock of the home. Raises TarragonError, which names the holder, if another process holds it."""
    try:
        descriptor = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable_home_error(home.folder, error) from error
    try:
        await _lock(descriptor, home, clock)
        with suppress(OSError):  # on a full disk only the error message of a second server lacks the holder
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "since": format_time(clock.now())}).encode(), 0)
        # A server that was killed has left this file behind.
        home.server.unlink(missing_ok=True)
        yield HomeLock(home, descriptor)
    finally:
        os.close(descriptor)


async def _lock(descriptor: int, home: Home, clock: Clock) -> None:
    for _ in range(_MAX_ATTEMPTS):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        await clock.sleep(_ATTEMPT_SECONDS)
    raise already_running_error(home)


def already_running_error(home: Home) -> TarragonError:
    """The error for a server that finds the home locked by another one."""
    holder: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        holder = json.loads(home.lock.read_bytes())
    server = read_server(home)
    where = f"at {server.url}" if server else "not ready yet"
    return TarragonError(
        f"a local cluster is already running in {home.folder}",
        why=f"process {holder.get('pid', 'unknown')}, since {holder.get('since', 'a moment ago')}, {where}",
        remedy="stop it with `tarragon down`, or set another TARRAGON_HOME to run a second one",
    )
