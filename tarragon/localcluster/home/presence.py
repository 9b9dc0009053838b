"""Who serves a home: one process at a time, known to all who look."""

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
from tarragon.kube.codec import moment, timestamp
from tarragon.localcluster.home.home import Home, unusable, write_private

_LOOK_SECONDS = 2.0
_TRIES = 20
_PAUSE = 0.05
"""Seconds between tries for the lock: somebody who only looks whether it is free holds it for a moment, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A process that serves a home. `born` tells it from another process that got the same pid later."""

    url: str
    pid: int
    born: str
    started: dt.datetime
    version: str

    def lives(self) -> bool:
        """Whether that very process is still there."""
        return bool(self.born) and birth(self.pid) == self.born


def birth(pid: int) -> str:
    """When the process began, as the system tells it; empty when there is none of that pid."""
    if Path("/proc/self/stat").exists():
        with suppress(OSError):
            # The command's name stands in parentheses and may hold anything, even parentheses.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return "" if fields[0] in "ZX" else fields[19]
        return ""
    # macOS and the BSDs
    asked = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S607
    return asked.stdout.strip()


def read_server(home: Home) -> Server | None:
    """What the last server has written and not taken back; it may be dead. None when there is nothing readable."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        told: dict[str, Any] = json.loads(home.server.read_bytes())
        return Server(
            url=str(told["url"]),
            pid=int(told["pid"]),
            born=str(told["born"]),
            started=moment(told["started"]),
            version=str(told["version"]),
        )
    return None


def write_server(home: Home, server: Server) -> None:
    """Tell everybody. Raises OSError."""
    told = {
        "url": server.url,
        "pid": server.pid,
        "born": server.born,
        "started": timestamp(server.started),
        "version": server.version,
    }
    write_private(home.server, json.dumps(told).encode())


def is_occupied(home: Home) -> bool:
    """Whether a living process holds the home. The lock goes with its holder, however that dies."""
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


class Hold:
    """A home that is held."""

    def __init__(self, home: Home, descriptor: int) -> None:
        self._lock = home.lock
        self._descriptor = descriptor

    async def until_lost(self, clock: Clock) -> None:
        """Return when the lock is not ours any more: somebody has removed the home, or begun another there."""
        while self._is_ours():
            await clock.sleep(_LOOK_SECONDS)

    def _is_ours(self) -> bool:
        try:
            return os.path.samestat(self._lock.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False
        except OSError:
            return True  # a disk that does not answer is no reason to end


@asynccontextmanager
async def occupied(home: Home, clock: Clock) -> AsyncIterator[Hold]:
    """Hold the home. Raises TarragonError, with who holds it, when somebody else does."""
    try:
        descriptor = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(home.folder, error) from error
    try:
        await _lock(descriptor, home, clock)
        with suppress(OSError):  # a full disk: whoever comes second is told less, and `down` must work all the same
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "since": timestamp(clock.now())}).encode(), 0)
        # A server that was killed could not take this back.
        home.server.unlink(missing_ok=True)
        yield Hold(home, descriptor)
    finally:
        os.close(descriptor)


async def _lock(descriptor: int, home: Home, clock: Clock) -> None:
    for _ in range(_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        await clock.sleep(_PAUSE)
    raise taken(home)


def taken(home: Home) -> TarragonError:
    """The words for somebody who comes second."""
    holder: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        holder = json.loads(home.lock.read_bytes())
    server = read_server(home)
    where = f"at {server.url}" if server else "not ready yet"
    return TarragonError(
        f"a local cluster already runs in {home.folder}",
        why=f"process {holder.get('pid', 'unknown')}, since {holder.get('since', 'a moment ago')}, {where}",
        remedy="`tarragon down` ends it; with another TARRAGON_HOME a second one can run beside it",
    )
