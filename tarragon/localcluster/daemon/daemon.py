"""The background server as its clients see it: started when it is not there, asked whether it is well, ended."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tarragon import __version__
from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.localcluster.daemon.logfile import last_lines, put_aside
from tarragon.localcluster.home.home import Home, unusable
from tarragon.localcluster.home.presence import Server, is_occupied, read_server

END_PODS = signal.SIGUSR1
"""Asks a server to end all pods before it ends itself. SIGTERM leaves them running for the next server."""

_LOOK_SECONDS = 0.03
_ANSWER_SECONDS = 5.0
_ASK_SECONDS = 1.0
_UNFINISHED = "/api/v1/pods?limit=1&fieldSelector=status.phase!=Succeeded,status.phase!=Failed"


def _default_command() -> Sequence[str]:
    # -P: a file in the folder where the user stands must not be taken for one of ours.
    return (sys.executable, "-P", "-m", "tarragon", "up", "--background")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a server is started. `patience` is the seconds it has to become ready."""

    command: Sequence[str] = field(default_factory=_default_command)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    patience: float = 60.0


@dataclass(frozen=True, slots=True)
class _Child:
    """A server that we have started and that has not become ready yet; `logged` is where its words begin."""

    pid: int
    logged: int


async def running(home: Home) -> Server | None:
    """The server of the home if it lives and answers. To be asked keeps an idle one awake."""
    server = read_server(home)
    if server is None or not server.lives() or await _ask(home, server, "/version") is None:
        return None
    return server


async def ensure_running(home: Home, clock: Clock, launch: Launch | None = None) -> Server:
    """The server of the home, started in the background if there is none. Safe for any number of clients at once.

    Raises TarragonError: it does not start (with the last lines of its log), or is of another version and has work.
    """
    server = await running(home)
    if server is not None and server.version == __version__:
        return server
    home.prepare()
    async with _starting(home, clock):
        server = await running(home)
        if server is not None and server.version != __version__:
            await _make_way(home, server, clock)
            server = None
        return server or await _start(home, clock, launch or Launch())


async def stop(home: Home, clock: Clock, how: signal.Signals = signal.SIGTERM, patience: float = 60.0) -> Server | None:
    """End the server of the home and wait until it is gone. None when there was none.

    SIGTERM leaves the pods running. END_PODS does not: that takes as long as they have grace, and the server answers
    meanwhile. One that has not answered for `patience` seconds is killed.
    """
    server = read_server(home)
    if server is None or not server.lives():
        return None
    with suppress(ProcessLookupError):
        os.kill(server.pid, how)
    answered = asked = clock.monotonic()
    while server.lives() or is_occupied(home):
        await clock.sleep(_LOOK_SECONDS)
        now = clock.monotonic()
        if now - asked > _ASK_SECONDS:
            asked = now
            if await _ask(home, server, "/readyz") is not None:
                answered = clock.monotonic()
        if now - answered > patience:
            with suppress(ProcessLookupError):
                os.kill(server.pid, signal.SIGKILL)
            answered = clock.monotonic()
    return server


async def _make_way(home: Home, server: Server, clock: Clock) -> None:
    """Of another version: an idle one is replaced, one with work is not touched."""
    answer = await _ask(home, server, _UNFINISHED)
    if answer is None or json.loads(answer).get("items"):
        raise TarragonError(
            f"the local cluster was started by Tarragon {server.version}, this is {__version__}",
            why=f"process {server.pid} serves {home.folder} at {server.url}, and pods run there",
            remedy="`tarragon down` ends it and them; the next command starts one of this version",
        )
    await stop(home, clock)


@asynccontextmanager
async def _starting(home: Home, clock: Clock) -> AsyncIterator[None]:
    """One client at a time starts a server; the others wait and then find it."""
    try:
        descriptor = os.open(home.start_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(home.folder, error) from error
    try:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            await clock.sleep(_LOOK_SECONDS)
        yield
    finally:
        os.close(descriptor)


async def _start(home: Home, clock: Clock, launch: Launch) -> Server:
    child = _spawn(home, launch)
    deadline = clock.monotonic() + launch.patience
    ended: int | None = None
    while clock.monotonic() < deadline:
        server = await running(home)
        if server is not None:
            return server
        if ended is None:
            ended = _exit_code(child.pid)
        # Ours may have ended because somebody's `tarragon up` came first: then that one is awaited.
        if ended is not None and not is_occupied(home):
            break
        await clock.sleep(_LOOK_SECONDS)
    why = f"it was not ready after {launch.patience:.0f} s" if ended is None else f"it ended with exit code {ended}"
    raise TarragonError(
        "the local cluster did not start",
        why=f"{why}; the last it said:\n{last_lines(home.log, child.logged) or '(nothing)'}",
        remedy=f"all of it is in {home.log}",
    )


def _spawn(home: Home, launch: Launch) -> _Child:
    """Detached from this process, its terminal and its signals. Not by subprocess: that wants its children awaited."""
    environment = {**launch.environment, "TARRAGON_HOME": str(home.folder)}
    try:
        put_aside(home.log)
        logged = home.log.stat().st_size if home.log.exists() else 0
        pid = os.posix_spawn(
            launch.command[0],
            list(launch.command),
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(home.log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, END_PODS],
        )
    except OSError as error:
        raise unusable(home.folder, error) from error
    return _Child(pid, logged)


def _exit_code(pid: int) -> int | None:
    """None while it lives."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status) if ended else None


async def _ask(home: Home, server: Server, path: str) -> bytes | None:
    """The body of a 200, None for anything else. By hand: importing a client library takes longer than all the rest."""
    address = urlsplit(server.url)
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            tls = ssl.create_default_context(cafile=str(home.ca))
            reader, writer = await asyncio.open_connection(address.hostname, address.port, ssl=tls)
            try:
                # HTTP/1.0: the answer ends with the connection, and comes in one piece.
                lines = (
                    f"GET {path} HTTP/1.0",
                    f"Host: {address.netloc}",
                    f"Authorization: Bearer {home.read_token()}",
                )
                writer.write("\r\n".join([*lines, "Accept: application/json", "", ""]).encode())
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError):
        return None
    return body if head.split(b" ", 2)[1:2] == [b"200"] else None
