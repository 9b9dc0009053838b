"""Starts, finds again, stops and buries containers: the kubelet's side of the shims.

A container is a folder. Whether its shim lives is asked of the lock in it, which the kernel lets go of with the
process; a pid is only believed together with the start time that stands beside it, so a reused pid is never mistaken.
A container whose shim is gone without a record of the exit is lost: what is left of it is found by the mark in its
environment and killed, and the record says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import py_compile
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
from tarragon.localcluster.home.home import make_private
from tarragon.localcluster.kubelet.base import processes
from tarragon.localcluster.kubelet.base.files import read_json, try_lock, unlock, write_json
from tarragon.localcluster.kubelet.shim import cri_log, exec_server, execution, shim

LOG_BYTES = 10 * 2**20
"""Of one log file; there are two of them for each run of a container."""
LOST_CODE = 137
LOOK_SECONDS = 0.1
"""Between two looks at a shim that cannot be waited for: on systems without pidfd, and while it is just starting."""
PATIENCE_SECONDS = 10.0
PROGRAM = "shim.pyc"
"""The shim, compiled, in the folder of a node; its parts lie beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stdin:
    """What a pod says of its container's input: without any of it, there is none."""

    is_open: bool = False
    once: bool = False
    tty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a shim is told. `grace` is for a stop that comes without one.

    `places` is kept for those who come later: where each path of the container is on this machine.
    """

    identity: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    grace: float
    places: Mapping[str, Path] = field(default_factory=dict)
    stdin: Stdin = Stdin()


class Process(msgspec.Struct, frozen=True):
    pid: int
    start: int


class State(msgspec.Struct, frozen=True, kw_only=True):
    """state.json, as the shim writes it, and `_bury` for a shim that could not. Times are nanoseconds since 1970.

    A `void` run never began: the kubelet was killed between the thought and the deed.
    """

    id: str = ""
    phase: str = ""
    boot: str = ""
    shim: Process | None = None
    main: Process | None = None
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


# Before it starts anything, a shim writes that it is starting. No word of it: there was no shim.
NEVER_BEGUN = State(void=True)


def _last_words(folder: Path) -> str:
    """Of a shim that we have started ourselves and that has not even written that it is starting."""
    try:
        lines = (folder / "shim.err").read_text(errors="replace").split("\n")
    except OSError:
        lines = []
    cause = next((line for line in reversed(lines) if line.strip()), "it said nothing")
    return f"the supervisor of the container could not start: {cause}"


def state_of(folder: Path) -> State | None:
    """None before the shim has written anything."""
    return read_json(folder / "state.json", State)


def program_in(folder: Path) -> Path:
    """The shim compiled into files of the node: it starts faster, and an upgrade of the package does not touch it."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for part in (cri_log, execution, exec_server, processes, shim):
        source = Path(str(part.__file__))
        compiled = folder / source.with_suffix(".pyc").name
        py_compile.compile(str(source), cfile=str(compiled), doraise=True, invalidation_mode=mode)
    return folder / PROGRAM


class Shims:
    """All containers of a node that live now, by folder. `changed(folder)` is called when one starts or ends.

    All methods belong to the thread of the event loop.
    """

    def __init__(self, program: Path, clock: Clock, changed: Callable[[Path], None]) -> None:
        self._program = program
        self._clock = clock
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._alive: dict[Path, _Watched] = {}
        self._burials: set[asyncio.Task[None]] = set()
        self._unrecorded: dict[Path, State] = {}

    def state(self, folder: Path) -> State | None:
        """What is known of the container, even where it could not be written down."""
        return self._unrecorded.get(folder) or state_of(folder)

    def lives(self, folder: Path) -> bool:
        return folder in self._alive

    def start(self, folder: Path, launch: Launch) -> None:
        """Returns at once. Raises OSError when no process can be started or nothing be written."""
        make_private(folder)
        make_private(launch.log.parent)
        spec = {
            "id": launch.identity,
            "argv": launch.argv,
            "env": dict(launch.env),
            "cwd": str(launch.cwd),
            "log": str(launch.log),
            "log_bytes": LOG_BYTES,
            "grace": launch.grace,
            "places": {path: str(place) for path, place in launch.places.items()},
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
        self._loop.add_reader(ready, self._reported, folder, ready)
        self._watch(folder, _Watched(pid=pid, pidfd=_pidfd(pid), is_child=True))

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
            # A stop that comes before the shim can listen waits until it does.
            setsigmask=[signal.SIGTERM],
            setsigdef=[signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE],
        )

    def _reported(self, folder: Path, ready: int) -> None:
        self._loop.remove_reader(ready)
        os.close(ready)
        self._changed(folder)

    def find(self, folder: Path) -> None:
        """Take up a container that another kubelet has started. `changed` follows if it has ended meanwhile."""
        state = self.state(folder)
        if self.lives(folder) or (state and state.has_ended):
            return
        claim = _claim(folder)
        if claim is not None:
            unlock(claim)
            self._gone(folder)
            return
        self._watch(folder, _found(state))

    def _watch(self, folder: Path, watched: _Watched) -> None:
        self._alive[folder] = watched
        if watched.pidfd >= 0:
            self._loop.add_reader(watched.pidfd, self._ended, folder)
        else:
            self._loop.call_later(LOOK_SECONDS, self._look, folder)

    def _look(self, folder: Path) -> None:
        watched = self._alive.get(folder)
        if watched is None:
            return
        if watched.is_child:
            ended = _reaped(watched.pid)
        else:
            claim = _claim(folder)
            ended = claim is not None
            if claim is not None:
                unlock(claim)
        if ended:
            self._ended(folder)
            return
        again = watched if watched.is_child else _found(state_of(folder))
        if again.pid and not watched.pid and (folder / "stop.json").exists():
            again.send(signal.SIGTERM)  # the stop came when nobody knew whom to tell
        self._watch(folder, again)

    def _ended(self, folder: Path) -> None:
        watched = self._alive.pop(folder)
        if watched.pidfd >= 0:
            self._loop.remove_reader(watched.pidfd)
            os.close(watched.pidfd)
        if watched.is_child:
            _reaped(watched.pid)
            self._gone(folder, State(error=_last_words(folder)))
        else:
            self._gone(folder)

    def _gone(self, folder: Path, unspoken: State = NEVER_BEGUN) -> None:
        """The shim is no more; either it has said how the container ended, or the container is lost."""
        state = state_of(folder)
        if state and state.has_ended:
            self._changed(folder)
            return
        burial = self._loop.create_task(self._bury(folder, state or unspoken))
        self._burials.add(burial)
        burial.add_done_callback(self._burials.discard)

    async def _bury(self, folder: Path, unspoken: State) -> None:
        claim = _claim(folder)
        if claim is None:  # a shim that was slow to start has come to life after all
            self._watch(folder, _found(state_of(folder)))
            return
        try:
            # From here on no shim can begin, and what is written now is the last that one has written.
            state = state_of(folder) or unspoken
            if not state.has_ended:
                await self._declare_lost(folder, state)
        finally:
            unlock(claim)
        self._changed(folder)

    async def _declare_lost(self, folder: Path, state: State) -> None:
        identity = state.id or identity_in(folder)
        if identity:
            await asyncio.to_thread(end_marked, f"{shim.MARK}={identity}".encode() + b"\0")
        finished = int(self._clock.now().timestamp() * 1_000_000_000)
        code = execution.START_ERROR if state.error else LOST_CODE
        gone = replace(state, id=identity, phase="exited", lost=not state.error, code=code, finished=finished)
        try:
            write_json(folder / "state.json", gone)
        except OSError:
            self._unrecorded[folder] = gone

    def stop(self, folder: Path, grace: float) -> None:
        """SIGTERM now, SIGKILL to all that is left after `grace` seconds. A second stop can only shorten the first."""
        watched = self._alive.get(folder)
        if watched is None:
            return
        with contextlib.suppress(OSError):
            write_json(folder / "stop.json", {"grace": grace})
        watched.send(signal.SIGTERM)

    def abandon(self, folder: Path) -> None:
        """Kill a shim that does not do what it should; its container is then lost, and buried."""
        if watched := self._alive.get(folder):
            watched.send(signal.SIGKILL)

    async def close(self) -> None:
        """Forget all containers. They live on."""
        for folder in list(self._alive):
            watched = self._alive.pop(folder)
            if watched.pidfd >= 0:
                self._loop.remove_reader(watched.pidfd)
                os.close(watched.pidfd)
        if self._burials:
            await asyncio.wait(self._burials)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """A shim that lives. Without a pidfd (-1) its pid may be unknown (0): then nobody can signal it for now."""

    pid: int
    pidfd: int
    is_child: bool

    def send(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.pidfd >= 0:
                signal.pidfd_send_signal(self.pidfd, signum)
            elif self.pid:
                os.kill(self.pid, signum)


def _found(state: State | None) -> _Watched:
    """The shim that wrote this state and holds its folder's lock."""
    if state is None or state.shim is None:
        return _Watched(pid=0, pidfd=-1, is_child=False)
    pidfd = _pidfd(state.shim.pid)
    if pidfd >= 0 and (state.boot != processes.boot_id() or processes.start_time(state.shim.pid) != state.shim.start):
        os.close(pidfd)
        return _Watched(pid=0, pidfd=-1, is_child=False)
    return _Watched(pid=state.shim.pid, pidfd=pidfd, is_child=False)


def _pidfd(pid: int) -> int:
    """-1 where there is no such process or no such thing."""
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


def _claim(folder: Path) -> int | None:
    """The folder's lock, held until it is unlocked; None while a shim has it."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


class _Spec(msgspec.Struct, frozen=True):
    id: str = ""
    grace: float = 0.0


def identity_in(folder: Path) -> str:
    """Empty when nothing was ever to be started there."""
    spec = read_json(folder / "spec.json", _Spec)
    return spec.id if spec else ""


def grace_in(folder: Path) -> float:
    """What the container's pod allows it."""
    spec = read_json(folder / "spec.json", _Spec)
    return spec.grace if spec else 0.0


def identities(prefix: str) -> set[str]:
    """Of all containers of which there are processes."""
    begin = f"\0{shim.MARK}={prefix}".encode()
    found = set()
    for _, environment in processes.environments():
        _, mark, rest = environment.partition(begin)
        if mark:
            found.add(prefix + rest.partition(b"\0")[0].decode(errors="replace"))
    return found


def end_marked(mark: bytes) -> None:
    """Kill all processes with this mark in their environment, and wait until they are gone. Blocks; not for ever."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (victims := processes.marked(mark)) and time.monotonic() < deadline:
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
