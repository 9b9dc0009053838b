"""Starts `tarragon` without importing it anew: a process that has imported everything forks once a command.

A start of the plain program is a second of imports, and the tests start it a thousand times. What is forked is a
process of its own all the same, with the arguments, environment, folder and files of the caller; only `/proc` shows the
command of the server, and of the environment the home alone. tests/cli/test_forkserver.py compares both ways.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import functools
import gc
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, TextIO

ROOT = Path(__file__).parents[2]
_STANDARD_ERROR = 2
_PATIENCE = 90.0
_FILES = 1024
_PLAIN = ("PYTHON", "LC_", "LANG", "LD_")
"""A process reads these when it starts: a command for which they differ is started plainly."""
_ALONE = ("tarragon.__main__", "tarragon.frameworks.tensorflow.replica_list.programs", "tarragon.plan.objects.programs")
"""What is run and not imported."""


class Process(Protocol):
    """What a `subprocess.Popen` is to the tests."""

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: signal.Signals, /) -> None: ...


def start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], files: Sequence[IO[Any] | int]
) -> Process:
    """A command of Python's: `python -P -m MODULE ...`, or an installed script with its arguments.

    `files` are its standard input, output and error.
    """
    if _is_plain(environment):
        stdin, stdout, stderr = files
        return subprocess.Popen(command, cwd=folder, env=environment, stdin=stdin, stdout=stdout, stderr=stderr)
    umask = os.umask(0o77)
    os.umask(umask)
    request = {"command": command, "folder": str(folder), "environment": dict(environment), "umask": umask}
    return _server().start(request, [file if isinstance(file, int) else file.fileno() for file in files])


class Background:
    """One that writes into a log, waited for as an `asyncio.subprocess.Process`."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> None:
        with Path(os.devnull).open("rb") as nothing:
            self._process = start(command, Path.cwd(), environment, [nothing, log, log])

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        return await asyncio.to_thread(self._process.wait, _PATIENCE)


def _is_plain(environment: Mapping[str, str]) -> bool:
    return sys.platform != "linux" or _read_at_start(environment) != _read_at_start(os.environ)


def _read_at_start(environment: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_PLAIN)}


@functools.cache
def _server() -> _Server:
    return _Server()


class _Server:
    """It ends with this process."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # as a pipe it is no terminal, and written in blocks
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._stop)

    def start(self, request: Mapping[str, Any], files: Sequence[int]) -> Process:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"!"], [theirs.fileno(), *files])
        ours.sendall(json.dumps(request).encode() + b"\n")
        return _Forked(ours)

    def _stop(self) -> None:
        self._control.close()
        self._process.wait()


class _Forked:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._code: int | None = None

    @functools.cached_property
    def _pid(self) -> int:
        """Of the first command it takes a while until there is one: the server has to import everything."""
        return _received(self._connection)

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None and self._pid:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("tarragon", timeout or 0)
            self._code = _received(self._connection)
            self._connection.close()
        assert self._code is not None
        return self._code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self._pid, number)


_NUMBER = struct.Struct("!i")
"""The server tells the pid of each command, and its exit code when it has ended."""


def _received(connection: socket.socket) -> int:
    number: int
    (number,) = _NUMBER.unpack(connection.recv(_NUMBER.size, socket.MSG_WAITALL))
    return number


def _main() -> None:
    """Returns in each process that is to be a command, when the command is done."""
    sys.path[:] = [path for path in sys.path if Path(path) != Path(__file__).parent]
    _import_everything()
    control = socket.socket(fileno=int(sys.argv[1]))
    connection = _serve(control)
    if connection is None:
        return
    with connection.makefile("rb") as lines:
        request = json.loads(lines.readline())
    connection.detach()
    os.closerange(3, _FILES)
    os.chdir(request["folder"])
    os.umask(request["umask"])
    os.posix_spawn = functools.partial(_spawn, os.posix_spawn)
    _become(request["command"], request["environment"])


def _become(command: Sequence[str], environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    _show(environment)
    time.tzset()
    sys.stdin, sys.stdout, sys.stderr = _opened(0, "r"), _opened(1, "w"), _opened(2, "w")
    try:
        _run(command)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            _exit_at_once(ended.code or 0)
        raise


def _spawn(
    plainly: Callable[..., int], path: str, command: Sequence[str], environment: Mapping[str, str], **how: Any
) -> int:
    """The embedded cluster, which commands start in the background, is forked from them; all else is started."""
    if list(command[1:5]) != ["-P", "-m", "tarragon", "up"]:
        return plainly(path, command, environment, **how)
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in how["setsigdef"]:
            signal.signal(number, signal.SIG_DFL)
        # As Python does when it starts: else a client that is gone would end the cluster.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # Whoever has a number of the command's files may still close it: it must not become another file's.
        for number in [int(name) for name in os.listdir("/proc/self/fd")]:  # noqa: PTH208 - numbers
            _open_as(number, os.devnull, os.O_RDWR, 0)
        for kind, number, *more in how["file_actions"]:
            if kind == os.POSIX_SPAWN_OPEN:
                _open_as(number, *more)
            else:
                os.dup2(number, *more)
        asyncio._set_running_loop(None)  # noqa: SLF001 - that of the command, which goes on in the other process
        _become(command, environment)
    finally:
        os._exit(1)


def _open_as(number: int, path: str, flags: int, mode: int) -> None:
    opened = os.open(path, flags, mode)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)


def _show(environment: Mapping[str, str]) -> None:
    """Write the home where `/proc` looks for the environment: tests know by it what was left running."""
    first, last = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[47:49])
    shown = f"TARRAGON_HOME={environment.get('TARRAGON_HOME', '')}".encode()[: last - first - 1]
    ctypes.memset(first, 0, last - first)
    ctypes.memmove(first, shown, len(shown))


def _opened(number: int, mode: str) -> TextIO:
    """A standard file as Python opens it: whether it can be sought in is known when that is done."""
    before = (sys.__stdin__, sys.__stdout__, sys.__stderr__)[number]
    assert before is not None
    file = io.FileIO(number, mode, closefd=False)
    buffer = io.BufferedReader(file) if mode == "r" else io.BufferedWriter(file)
    return io.TextIOWrapper(
        buffer, encoding=before.encoding, errors=before.errors, line_buffering=number == _STANDARD_ERROR
    )


def _exit_at_once(code: int) -> None:
    """As Python ends, but for taking apart all modules, which takes longer than most commands."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no public name for it
    with contextlib.suppress(OSError):  # nobody reads it any more: Python has its own way to say so
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code & 0xFF)


def _import_everything() -> None:
    import tarragon

    for module in pkgutil.walk_packages(tarragon.__path__, "tarragon."):
        if not module.name.startswith(_ALONE):
            with contextlib.suppress(ImportError):  # tests of what is missing start plainly
                __import__(module.name)
    gc.collect()
    gc.freeze()  # else each child copies what it looks through


def _serve(control: socket.socket) -> socket.socket | None:
    """In a child: the connection on which its request comes, its standard files in place."""
    running: dict[int, socket.socket] = {}
    bell, waker = socket.socketpair()
    waker.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker.fileno())
    while True:
        ready, _, _ = select.select([control, bell], [], [])
        if bell in ready:
            bell.recv(4096)
            _report_ended(running)
        if control not in ready:
            continue
        word, descriptors, _, _ = socket.recv_fds(control, 1, 4)
        if not word:
            return None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, descriptor in enumerate(descriptors[1:]):
                os.dup2(descriptor, number)
            return socket.socket(fileno=descriptors[0])
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        running[pid] = socket.socket(fileno=descriptors[0])
        running[pid].sendall(_NUMBER.pack(pid))


def _report_ended(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as connection, contextlib.suppress(OSError):  # nobody waits for it any more
            connection.sendall(_NUMBER.pack(os.waitstatus_to_exitcode(status)))


def _run(command: Sequence[str]) -> None:
    if "-m" in command:
        place = command.index("-m") + 1
        sys.argv[:] = command[place:]
        runpy.run_module(command[place], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = command
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    _main()
