"""Starts a container's command as a process, with the error messages of container runtimes.

The shim imports this module outside the package, so it uses only the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import sys
import termios

START_ERROR = 128  # what containerd reports for a command that could not be started
MAX_MESSAGE_BYTES = 2 * 1024
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class StartError(Exception):
    """The command could not be started; the message is worded like a container runtime's."""


def prctl(option: int, value: int) -> None:
    """Call prctl on Linux. Elsewhere, the kubelet ends a container whose shim was killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def found_on_path(name: str, path: str) -> str:
    """The program's path, looked up like runc does. Raises StartError."""
    is_not_executable = False
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder or ".", name)
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            is_not_executable = True
    if is_not_executable:
        raise StartError(f'exec: "{name}": permission denied')
    raise StartError(f'exec: "{name}": executable file not found in $PATH')


def execute(argv: list[str], env: dict[str, str], cwd: str) -> None:
    """Replace this process by the command; never returns. Raises StartError."""
    try:
        os.chdir(cwd)
    except OSError as error:
        raise StartError(f'chdir to cwd ("{cwd}") failed: {(error.strerror or "").lower()}') from error
    name = argv[0]
    program = name if "/" in name else found_on_path(name, env.get("PATH") or os.defpath)
    if os.path.isdir(program):
        raise StartError(f'exec: "{name}": is a directory')
    try:
        os.execve(program, argv, env)  # noqa: S606 - there is no shell by design
    except OSError as error:
        raise StartError(start_error_message(error, name, program)) from error
    except ValueError as error:  # a NUL, or a name with `=`
        raise StartError(f'exec: "{name}": {error}') from error


def start_error_message(error: OSError, name: str, program: str) -> str:
    if error.errno == errno.ENOENT and os.path.exists(program):
        return f'exec: "{name}": the file is there, but the interpreter that its first line names is not'
    if error.errno == errno.ENOENT:
        return f'exec: "{name}": stat {name}: no such file or directory'
    if error.errno == errno.E2BIG:
        return f'exec: "{name}": argument list too long: one argument or variable may have 128 KiB'
    return f'exec: "{name}": {(error.strerror or str(error)).lower()}'


class ProcessSpec:
    """How to start a process of the container: command, environment, folder and streams."""

    def __init__(self, spec: dict[str, object], streams: tuple[int, int, int], terminal: bool) -> None:  # noqa: FBT001
        self.argv: list[str] = list(spec["argv"])  # type: ignore[call-overload]
        self.env: dict[str, str] = dict(spec["env"])  # type: ignore[call-overload]
        self.cwd = str(spec["cwd"])
        self.streams = streams
        self.terminal = terminal
        if terminal:
            self.env.setdefault("TERM", "xterm")


def exec_child(terms: ProcessSpec, report: int, shim: int) -> None:
    """Run the command in the forked child; never returns."""
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != shim:  # the shim died before the line above took effect
            os._exit(START_ERROR)
        for signum in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT):
            signal.signal(signum, signal.SIG_DFL)  # ignored signals stay ignored across execve
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("500")  # when memory runs out, the kernel should kill a container, not its supervisor
        for target, stream in enumerate(terms.streams):
            os.dup2(stream, target)
        if terms.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        execute(terms.argv, terms.env, terms.cwd)
    except StartError as error:
        os.write(report, str(error).encode()[:MAX_MESSAGE_BYTES])
    except OSError as error:
        os.write(report, f"starting the process failed: {error}".encode()[:MAX_MESSAGE_BYTES])
    finally:
        os._exit(START_ERROR)


def spawn(terms: ProcessSpec) -> int:
    """Start a process, and return its pid. Raises StartError when the command cannot be executed."""
    report, report_end = os.pipe()
    shim = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(report)
        raise
    else:
        if pid == 0:
            exec_child(terms, report_end, shim)
    finally:
        os.close(report_end)
    message = os.read(report, MAX_MESSAGE_BYTES).decode(errors="replace")  # empty once the command runs: close-on-exec
    os.close(report)
    if message:
        os.waitpid(pid, 0)
        raise StartError(message)
    return pid


class StandardStreams:
    """The streams of the container's own process. `stdin` is its write end, -1 if there is none."""

    def __init__(self, spec: dict[str, object]) -> None:
        self.terminal = bool(spec.get("tty"))
        self.stdin = -1
        if self.terminal:
            out, slave = os.openpty()
            self.outputs = [(out, b"stdout")]
            self.child_ends = (slave, slave, slave)
            if spec.get("stdin"):
                self.stdin = os.dup(out)
            return
        stdin_end, self.stdin = os.pipe() if spec.get("stdin") else (os.open(os.devnull, os.O_RDONLY), -1)
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        self.outputs = [(out, b"stdout"), (err, b"stderr")]
        self.child_ends = (stdin_end, out_end, err_end)

    def close_child_ends(self) -> None:
        for descriptor in set(self.child_ends):
            os.close(descriptor)

    def close_stdin(self) -> None:
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1
