"""The background server from the client's side: finding it, starting it when it does not run, and stopping it."""

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
from tarragon.localcluster.daemon.log_rotation import last_lines, rotate_at_start
from tarragon.localcluster.home.home import Home, unusable_home_error
from tarragon.localcluster.home.lock import ServerInfo, is_locked, read_server

STOP_PODS_SIGNAL = signal.SIGUSR1
"""The signal that makes a server stop all pods before it stops. SIGTERM leaves them running for the next server."""

_POLL_SECONDS = 0.01
_REQUEST_TIMEOUT = 5.0
_READYZ_SECONDS = 1.0
_UNFINISHED = "/api/v1/pods?limit=1&fieldSelector=status.phase!=Succeeded,status.phase!=Failed"


def _default_command() -> Sequence[str]:
    # -P: files in the user's working directory must not shadow our modules.
    return (sys.executable, "-P", "-m", "tarragon", "up", "--stop-when-idle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a server is started. `patience` is the time in seconds in which it must become ready."""

    command: Sequence[str] = field(default_factory=_default_command)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    start_timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class _Child:
    """A server that is starting. Its messages begin at byte `logged` of the log."""

    pid: int
    logged: int


async def find_server(home: Home) -> ServerInfo | None:
    """The server of the home if it runs and answers. The request restarts its idle timeout."""
    server = read_server(home)
    if server is None or not server.is_running() or await _ask(home, server, "/version") is None:
        return None
    return server


async def ensure_running(home: Home, clock: Clock, launch: Launch | None = None) -> ServerInfo:
    """The server of the home, started in the background if none runs. Any number of clients may call this at once.

    Raises TarragonError if the server does not start (with the last lines of its log), or if the running server has
    another version and unfinished pods.
    """
    server = await find_server(home)
    if server is not None and server.version == __version__:
        return server
    home.prepare()
    async with _starting(home, clock):
        server = await find_server(home)
        if server is not None and server.version != __version__:
            await _stop_other_version(home, server, clock)
            server = None
        return server or await _start(home, clock, launch or Launch())


async def stop(
    home: Home, clock: Clock, how: signal.Signals = signal.SIGTERM, patience: float = 60.0
) -> ServerInfo | None:
    """Stop the server of the home and wait until it is gone. None if none was running.

    SIGTERM leaves the pods running. STOP_PODS_SIGNAL stops them first, which takes up to their grace period, while the
    server keeps answering. A server that has not answered for `patience` seconds is killed.
    """
    server = read_server(home)
    if server is None or not server.is_running():
        return None
    with suppress(ProcessLookupError):
        os.kill(server.pid, how)
    answered_at = asked_at = clock.monotonic()
    while server.is_running() or is_locked(home):
        await clock.sleep(_POLL_SECONDS)
        now = clock.monotonic()
        if now - asked_at > _READYZ_SECONDS:
            asked_at = now
            if await _ask(home, server, "/readyz") is not None:
                answered_at = clock.monotonic()
        if now - answered_at > patience:
            with suppress(ProcessLookupError):
                os.kill(server.pid, signal.SIGKILL)
            answered_at = clock.monotonic()
    return server


async def _stop_other_version(home: Home, server: ServerInfo, clock: Clock) -> None:
    """Stop a server of another version. Raises TarragonError if it has unfinished pods."""
    answer = await _ask(home, server, _UNFINISHED)
    if answer is None or json.loads(answer).get("items"):
        raise TarragonError(
            f"the local cluster was started by Tarragon {server.version}, this is {__version__}",
            why=f"process {server.pid} serves {home.folder} at {server.url} and runs pods",
            remedy="stop both with `tarragon down`; the next command starts a cluster of this version",
        )
    await stop(home, clock)


@asynccontextmanager
async def _starting(home: Home, clock: Clock) -> AsyncIterator[None]:
    """Hold the start lock: one client at a time starts a server, and the others wait and then find it."""
    try:
        descriptor = os.open(home.start_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable_home_error(home.folder, error) from error
    try:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            await clock.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


async def _start(home: Home, clock: Clock, launch: Launch) -> ServerInfo:
    child = _spawn(home, launch)
    issuing = asyncio.create_task(asyncio.to_thread(_issue_certificates, home, clock))
    try:
        return await _until_ready(home, clock, launch, child)
    finally:
        await issuing


def _issue_certificates(home: Home, clock: Clock) -> None:
    """Issue the certificates of a new home here, while the server is still busy with its imports."""
    if home.ca.exists():
        return
    from tarragon.localcluster.daemon.certificates import ensure_certificates  # noqa: PLC0415 - not in later starts

    with suppress(OSError):  # the server will say what is wrong
        ensure_certificates(home, clock.now())


async def _until_ready(home: Home, clock: Clock, launch: Launch, child: _Child) -> ServerInfo:
    deadline = clock.monotonic() + launch.start_timeout
    exit_code: int | None = None
    while clock.monotonic() < deadline:
        server = await find_server(home)
        if server is not None:
            return server
        if exit_code is None:
            exit_code = _exit_code(child.pid)
        # Our server may have exited because another `tarragon up` was first: then wait for that one.
        if exit_code is not None and not is_locked(home):
            break
        await clock.sleep(_POLL_SECONDS)
    why = (
        f"it was not ready after {launch.start_timeout:.0f} s"
        if exit_code is None
        else f"it exited with code {exit_code}"
    )
    raise TarragonError(
        "the local cluster did not start",
        why=f"{why}; its last messages were:\n{last_lines(home.log, child.logged) or '(none)'}",
        remedy=f"the whole log is in {home.log}",
    )


def _spawn(home: Home, launch: Launch) -> _Child:
    """Start a server detached from this process, its terminal and its signals.

    The module subprocess is not used, because it warns about children that nobody waits for.
    """
    environment = {**launch.environment, "TARRAGON_HOME": str(home.folder)}
    try:
        rotate_at_start(home.log)
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
            setsigdef=[signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, STOP_PODS_SIGNAL],
        )
    except OSError as error:
        raise unusable_home_error(home.folder, error) from error
    return _Child(pid, logged)


def _exit_code(pid: int) -> int | None:
    """The exit code of the child, None while it runs."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status) if ended else None


async def _ask(home: Home, server: ServerInfo, path: str) -> bytes | None:
    """The body of a response with status 200, else None. Importing a client library would take too long."""
    address = urlsplit(server.url)
    try:
        async with asyncio.timeout(_REQUEST_TIMEOUT):
            tls = ssl.create_default_context(cafile=str(home.ca))
            reader, writer = await asyncio.open_connection(address.hostname, address.port, ssl=tls)
            try:
                # In HTTP/1.0 the response ends with the connection and is not chunked.
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
