"""The kubelet's client for shims: starts, adopts and stops containers, and records lost ones.

A container is a folder. Its shim lives while the lock in it is held, which the kernel releases with the process. A pid
is only trusted together with the recorded start time, so a reused pid is never mistaken for the shim. A container is
lost when its shim died without recording the exit: its processes are then found by the mark in their environment and
killed, and the record says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tarragon.base.clock import Clock
from tarragon.localcluster.home.home import create_private_folder
from tarragon.localcluster.kubelet.base import processes
from tarragon.localcluster.kubelet.base.bytecode import compile_program
from tarragon.localcluster.kubelet.base.files import read_json, try_lock, unlock, write_json
from tarragon.localcluster.kubelet.shim import cri_log, exec_server, execution, shim

LOG_BYTES = 10 * 2**20
"""The size limit of one log file; each run of a container has up to two."""
LOST_EXIT_CODE = 137
POLL_SECONDS = 0.1
"""How often to check a shim that cannot be waited for: without pidfd, or while it is still starting."""
KILL_WAIT_SECONDS = 10.0
SHIM_PROGRAM = "shim.pyc"
"""The compiled shim in the node's folder; the modules it imports are beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stdin:
    """The stdin settings of a container. By default it has no stdin."""

    is_open: bool = False
    once: bool = False
    tty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """What a shim is to run. `grace` is the default for a stop without a grace period.

    `local_paths` maps each path of the container to its local path, for later exec commands.
    """

    identity: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    grace: float
    local_paths: Mapping[str, Path] = field(default_factory=dict)
    stdin: Stdin = Stdin()


class ProcessIdentity(msgspec.Struct, frozen=True):
    pid: int
    start: int


class ShimState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of state.json, written by the shim, or by the kubelet if the shim died.

    Times are nanoseconds since 1970. `void`: the run never began, as the kubelet was killed before it started the shim.
    """

    id: str = ""
    phase: str = ""
    boot: str = ""
    shim: ProcessIdentity | None = None
    main: ProcessIdentity | None = None
    started: int = 0
    finished: int = 0
    code: int = 0
    signal: int = 0
    error: str = ""
    stopped: bool = False
    lost: bool = False
    void: bool = False
    lost_lines: int = 0
    peak_rss: int = 0

    @property
    def has_ended(self) -> bool:
        return self.phase == "exited"


NEVER_STARTED = ShimState(void=True)
"""The state of a run without a state file: a shim writes `starting` first, so no shim ever ran."""


def _last_words(folder: Path) -> str:
    """The error of a shim of ours that ended without writing a state."""
    try:
        lines = (folder / "shim.err").read_text(errors="replace").split("\n")
    except OSError:
        lines = []
    cause = next((line for line in reversed(lines) if line.strip()), "no error output")
    return f"the supervisor of the container could not start: {cause}"


def state_of(folder: Path) -> ShimState | None:
    """The shim's state; None before it has written any."""
    return read_json(folder / "state.json", ShimState)


def compile_shim(folder: Path) -> Path:
    """Compile the shim into the node's folder, and return its path. Raises OSError."""
    for part in (cri_log, execution, exec_server, processes, shim):
        source = Path(str(part.__file__))
        compile_program(source, folder / source.with_suffix(".pyc").name)
    return folder / SHIM_PROGRAM


class ShimClient:
    """The live containers of a node, by run folder. `changed(folder)` is called when one starts or ends.

    All methods must be called in the event loop's thread.
    """

    def __init__(self, program: Path, clock: Clock, changed: Callable[[Path], None]) -> None:
        self._program = program
        self._clock = clock
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._alive: dict[Path, _Watched] = {}
        self._recovery_tasks: set[asyncio.Task[None]] = set()
        self._unrecorded: dict[Path, ShimState] = {}

    def state(self, folder: Path) -> ShimState | None:
        """The container's state, including one that could not be written to a full disk."""
        return self._unrecorded.get(folder) or state_of(folder)

    def is_alive(self, folder: Path) -> bool:
        return folder in self._alive

    def start(self, folder: Path, launch: LaunchSpec) -> None:
        """Start a container, without waiting. Raises OSError when its files or its process cannot be created."""
        self._unrecorded.pop(folder, None)  # An earlier attempt that never began had the same folder.
        create_private_folder(folder)
        create_private_folder(launch.log.parent)
        spec = {
            "id": launch.identity,
            "argv": launch.argv,
            "env": dict(launch.env),
            "cwd": str(launch.cwd),
            "log": str(launch.log),
            "log_bytes": LOG_BYTES,
            "grace": launch.grace,
            "places": {path: str(place) for path, place in launch.local_paths.items()},
            "stdin": launch.stdin.is_open,
            "stdin_once": launch.stdin.once,
            "tty": launch.stdin.tty,
        }
        write_json(folder / "spec.json", spec)
        ready, ready_end = os.pipe()
        try:
            pid = self._spawn(folder, ready_end)
        except OSError:
            os.close(ready)
            raise
        finally:
            os.close(ready_end)
        self._loop.add_reader(ready, self._on_ready, folder, ready)
        self._watch(folder, _Watched(pid=pid, pidfd=_pidfd(pid), is_child=True, identity=launch.identity))

    def _spawn(self, folder: Path, ready: int) -> int:
        log = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", str(self._program), str(folder)],
            {name: value for name, value in os.environ.items() if name.startswith(("LD_", "DYLD_"))},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, ready, 1),
                (os.POSIX_SPAWN_OPEN, 2, str(folder / "shim.err"), log, 0o600),
            ],
            # SIGTERM stays pending until the shim has installed its handler.
            setsigmask=[signal.SIGTERM],
            setsigdef=[signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE],
        )

    def _on_ready(self, folder: Path, ready: int) -> None:
        self._loop.remove_reader(ready)
        os.close(ready)
        self._changed(folder)

    def adopt(self, folder: Path) -> None:
        """Adopt a container that another kubelet started. `changed` is called if it has ended meanwhile.

        Raises OSError when the folder's lock cannot be opened.
        """
        state = self.state(folder)
        if self.is_alive(folder) or (state and state.has_ended):
            return
        identity = recorded_identity(folder)
        claim = _try_claim(folder)
        if claim is not None:
            unlock(claim)
            self._on_shim_exit(folder, replace(NEVER_STARTED, id=identity))
            return
        self._watch(folder, _adopted(state, identity))

    def _watch(self, folder: Path, watched: _Watched) -> None:
        self._alive[folder] = watched
        if watched.pidfd >= 0:
            self._loop.add_reader(watched.pidfd, self._on_end, folder)
        else:
            self._loop.call_later(POLL_SECONDS, self._poll_shim, folder)

    def _poll_shim(self, folder: Path) -> None:
        watched = self._alive.get(folder)
        if watched is None:
            return
        try:
            current = _polled(folder, watched)
        except OSError:  # such as too many open files: ask again
            current = watched
        if current is None:
            self._on_end(folder)
            return
        if current.pid and not watched.pid and (folder / "stop.json").exists():
            current.send(signal.SIGTERM)  # the stop was requested before the shim's pid was known
        self._watch(folder, current)

    def _on_end(self, folder: Path) -> None:
        watched = self._alive.pop(folder)
        if watched.pidfd >= 0:
            self._loop.remove_reader(watched.pidfd)
            os.close(watched.pidfd)
        if watched.is_child:
            _reaped(watched.pid)
            self._on_shim_exit(folder, ShimState(id=watched.identity, error=_last_words(folder)))
        else:
            self._on_shim_exit(folder, replace(NEVER_STARTED, id=watched.identity))

    def _on_shim_exit(self, folder: Path, default: ShimState) -> None:
        """Handle the exit of a shim: either it recorded the container's exit, or the container is lost.

        `default` is the state of a shim that has written none.
        """
        state = state_of(folder)
        if state and state.has_ended:
            self._changed(folder)
            return
        task = self._loop.create_task(self._recover(folder, state or default))
        self._recovery_tasks.add(task)
        task.add_done_callback(self._recovery_tasks.discard)

    async def _recover(self, folder: Path, default: ShimState) -> None:
        """Record a container as lost under the folder's lock, unless its shim recorded the exit after all."""
        try:
            claim = _try_claim(folder)
        except OSError as error:
            # The folder was removed. Or the disk is full, and the shim could not create the lock either.
            was_removed = isinstance(error, FileNotFoundError)
            await self._declare_lost(folder, ShimState(id=default.id) if was_removed else default)
            self._changed(folder)
            return
        if claim is None:  # a slow shim has started after all
            self._watch(folder, _adopted(state_of(folder), default.id))
            return
        try:
            # While the lock is held no shim can start, so the state on disk is final.
            state = state_of(folder) or default
            if not state.has_ended:
                await self._declare_lost(folder, state)
        finally:
            unlock(claim)
        self._changed(folder)

    async def _declare_lost(self, folder: Path, state: ShimState) -> None:
        identity = state.id or recorded_identity(folder)
        if identity:
            await asyncio.to_thread(kill_marked, f"{shim.MARK_VARIABLE}={identity}".encode() + b"\0")
        finished = int(self._clock.now().timestamp() * 1_000_000_000)
        code = execution.START_ERROR if state.error else LOST_EXIT_CODE
        final = replace(state, id=identity, phase="exited", lost=not state.error, code=code, finished=finished)
        try:
            write_json(folder / "state.json", final)
        except OSError:
            self._unrecorded[folder] = final

    def stop(self, folder: Path, grace: float) -> None:
        """Send SIGTERM now, and SIGKILL after `grace` seconds. A second stop can only shorten the grace period."""
        watched = self._alive.get(folder)
        if watched is None:
            return
        with contextlib.suppress(OSError):
            write_json(folder / "stop.json", {"grace": grace})
        watched.send(signal.SIGTERM)

    def kill_shim(self, folder: Path) -> None:
        """Kill a shim that does not react; its container is then lost."""
        if watched := self._alive.get(folder):
            watched.send(signal.SIGKILL)

    async def close(self) -> None:
        """Stop watching the containers, which keep running."""
        for folder in list(self._alive):
            watched = self._alive.pop(folder)
            if watched.pidfd >= 0:
                self._loop.remove_reader(watched.pidfd)
                os.close(watched.pidfd)
        if self._recovery_tasks:
            await asyncio.wait(self._recovery_tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """A live shim. Without a pidfd (-1), the pid may be unknown (0); the shim cannot be signalled then.

    `identity` is that of its container, which is needed when the folder was removed.
    """

    pid: int
    pidfd: int
    is_child: bool
    identity: str

    def send(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.pidfd >= 0:
                signal.pidfd_send_signal(self.pidfd, signum)
            elif self.pid:
                os.kill(self.pid, signum)


def _polled(folder: Path, watched: _Watched) -> _Watched | None:
    """The shim as it is known now; None when it has ended."""
    if watched.is_child:
        return None if _reaped(watched.pid) else watched
    return None if _has_released(folder) else _adopted(state_of(folder), watched.identity)


def _adopted(state: ShimState | None, identity: str) -> _Watched:
    """The live shim that wrote this state and holds its folder's lock."""
    unknown = _Watched(pid=0, pidfd=-1, is_child=False, identity=identity)
    if state is None or state.shim is None:
        return unknown
    pidfd = _pidfd(state.shim.pid)
    if pidfd >= 0 and (state.boot != processes.boot_id() or processes.start_time(state.shim.pid) != state.shim.start):
        os.close(pidfd)
        return unknown
    return _Watched(pid=state.shim.pid, pidfd=pidfd, is_child=False, identity=identity)


def _pidfd(pid: int) -> int:
    """A pidfd of the process; -1 without such a process or without support for pidfds."""
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def _has_released(folder: Path) -> bool:
    """Whether no shim holds the folder's lock. A shim whose folder was removed ends, too."""
    try:
        claim = _try_claim(folder)
    except FileNotFoundError:
        return True
    if claim is None:
        return False
    unlock(claim)
    return True


def _try_claim(folder: Path) -> int | None:
    """Take the folder's lock, and return its descriptor; None while a shim holds it."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


class _Spec(msgspec.Struct, frozen=True):
    id: str = ""
    grace: float = 0.0


def recorded_identity(folder: Path) -> str:
    """The identity of the run in this folder; empty without a spec."""
    spec = read_json(folder / "spec.json", _Spec)
    return spec.id if spec else ""


def run_grace_seconds(folder: Path) -> float:
    """The grace period of the run's pod, in seconds."""
    spec = read_json(folder / "spec.json", _Spec)
    return spec.grace if spec else 0.0


def running_identities(prefix: str) -> set[str]:
    """The identities, with this prefix, of all containers that have processes."""
    variable = f"\0{shim.MARK_VARIABLE}={prefix}".encode()
    running = set()
    for _, environment in processes.start_environments():
        _, mark, rest = environment.partition(variable)
        if mark:
            running.add(prefix + rest.partition(b"\0")[0].decode(errors="replace"))
    return running


def kill_marked(mark: bytes) -> None:
    """Kill all processes with this mark in their environment, and wait for their end.

    Blocks up to KILL_WAIT_SECONDS.
    """
    deadline = time.monotonic() + KILL_WAIT_SECONDS
    while (victims := processes.pids_with_mark(mark)) and time.monotonic() < deadline:
        with _pidfds(victims) as watched:
            for pid in victims:
                processes.kill(pid, signal.SIGKILL)
            for descriptor in watched:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                poll.poll(max(0.0, deadline - time.monotonic()) * 1000)


@contextlib.contextmanager
def _pidfds(pids: list[int]) -> Iterator[list[int]]:
    descriptors = [descriptor for descriptor in map(_pidfd, pids) if descriptor >= 0]
    try:
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
