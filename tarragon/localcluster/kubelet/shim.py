"""Supervises one container: starts its command, keeps its log, ends its whole tree of processes, records how it went.

Runs as a program of its own, `python -I -S shim.py FOLDER`, one for each container, so that containers outlive the
kubelet. Imports nothing but a little of the standard library: it must start in milliseconds and stay small.

In FOLDER:  spec.json   what to run (read)            lock        held as long as this process lives
            state.json  starting, running, exited     stop.json   {"grace": seconds}, read at every SIGTERM
            guests      a socket: see guests.py, which lies beside this program and is a part of it
The kubelet holds the other end of stdout: it is closed as soon as state.json says `running` or `exited`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import sys
import termios
import time
from collections.abc import Callable

if __package__:
    from tarragon.localcluster.kubelet import guests
else:  # a program of its own: `-I` and `-S` leave nothing on the path but the standard library
    sys.path.append(os.path.dirname(sys.argv[0]))
    import guests  # type: ignore[import-not-found,no-redef]

MARK = "TARRAGON_CONTAINER_ID"
START_ERROR = 128  # what containerd reports for a command that could not be started
CHUNK = 16 * 1024  # containerd cuts longer lines at this size, too
READ = 64 * 1024
FLUSH_SECONDS = 0.25  # how long a line without an end (a progress bar) may stay unseen
LOOK_SECONDS = 5.0  # between two looks whether the folder is still there
LISTEN_SECONDS = 0.25
KILL_SECONDS = 10.0  # a process in uninterruptible sleep cannot be killed; do not wait for it for ever
RECORD = 8 * 1024  # reserved at the start, so that the exit can be recorded on a full disk
NOTE = 2 * 1024
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LINUX = sys.platform == "linux"


class StartError(Exception):
    """The command could not be started; the words are a container runtime's."""


def prctl(option: int, value: int) -> None:
    """Only Linux has it; elsewhere a container whose shim is killed is ended by the kubelet."""
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# ------------------------------------------------------------------------------------------------------------ processes


def stat_of(pid: int) -> tuple[str, int, int] | None:
    """State letter, parent, and start time in clock ticks since boot, which no other process of this pid can share."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command's name stands in parentheses and may hold anything, even parentheses.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1]), int(fields[19])


def start_time(pid: int) -> int:
    stat = stat_of(pid)
    return stat[2] if stat else 0


def living() -> dict[int, int]:
    """Parent of each process that is not dead yet."""
    if not LINUX:
        return {}
    parents = {}
    for name in os.listdir("/proc"):
        stat = stat_of(int(name)) if name.isdigit() else None
        if stat and stat[0] not in "ZX":
            parents[int(name)] = stat[1]
    return parents


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in living().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        offspring = children.get(waiting.pop(), [])
        found += offspring
        waiting += offspring
    return found


def environments() -> list[tuple[int, bytes]]:
    """With what each process of ours was started: each variable ends with a NUL, and one stands before the first."""
    found = []
    for pid in living():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                found.append((pid, b"\0" + file.read()))
        except OSError:  # gone meanwhile, or another user's
            continue
    return found


def marked(mark: bytes) -> list[int]:
    """Processes that were started with this text in their environment, wherever in the tree they have gone."""
    return [pid for pid, environment in environments() if b"\0" + mark in environment and pid != os.getpid()]


def kill(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def kill_group(group: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signum)


# ---------------------------------------------------------------------------------------------------------------- files


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def write_atomically(path: str, text: str) -> None:
    beside = path + ".new"
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(beside, path)


class Record:
    """state.json, replaced as a whole at each step; the last step is synced to the disk."""

    def __init__(self, folder: str, identity: str) -> None:
        self.path = os.path.join(folder, "state.json")
        self.reserve = os.path.join(folder, "state.reserved")
        pid = os.getpid()
        self.facts: dict[str, object] = {
            "id": identity,
            "boot": boot_id(),
            "shim": {"pid": pid, "start": start_time(pid)},
        }

    def starting(self) -> None:
        write_atomically(self.path, json.dumps({**self.facts, "phase": "starting"}))
        with open(self.reserve, "wb") as file:
            file.write(b" " * RECORD)

    def running(self, pid: int, started: int) -> None:
        self.facts |= {"main": {"pid": pid, "start": start_time(pid)}, "started": started}
        # On a full disk this may fail: then the kubelet sees a container that stays `starting` until it has ended.
        with contextlib.suppress(OSError):
            write_atomically(self.path, json.dumps({**self.facts, "phase": "running"}))

    def exited(self, **outcome: object) -> None:
        self.facts |= outcome
        text = json.dumps({**self.facts, "phase": "exited"}).encode().ljust(RECORD)
        for _ in range(600):
            try:
                return self._finish(text)
            except FileNotFoundError:
                return None  # the folder has been removed: nobody wants to know
            except OSError:
                time.sleep(1)
        return None

    def _finish(self, text: bytes) -> None:
        descriptor = os.open(self.reserve, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, text)  # spaces are left around the JSON: the reserved blocks are only filled anew
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(self.reserve, self.path)


class OutOfRoom(Exception):
    """Lines could not be written, all but the first `kept` of them."""

    def __init__(self, reason: str, *, kept: int) -> None:
        super().__init__(reason)
        self.kept = kept


class Log:
    """A file of CRI lines and the one before it, each within a limit. A full disk loses lines, it stops nobody."""

    def __init__(self, path: str, limit: int) -> None:
        self.path = path
        self.limit = limit
        self.lost = 0
        self.lost_in_all = 0
        self.reason = ""
        self.size = 0
        self.descriptor = -1
        self._stamped = (0, "")

    def create(self) -> None:
        """So that a container that says nothing has an empty log, not none."""
        with contextlib.suppress(OSError):
            self._turn()

    def stamp(self) -> bytes:
        now = time.time_ns()
        second, fraction = divmod(now, 1_000_000_000)
        if self._stamped[0] != second:
            self._stamped = (second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)))
        return f"{self._stamped[1]}.{fraction:09d}Z ".encode()

    def write(self, lines: list[bytes]) -> None:
        if not lines:
            return
        notice = []
        if self.lost:
            words = f"stderr F [tarragon] {self.lost} lines of output could not be written here: {self.reason}\n"
            notice = [self.stamp() + words.encode()]
        waiting = notice + lines
        try:
            for block in blocks(waiting, self.limit):
                self._append(block)
                waiting = waiting[len(block) :]
                self.lost = 0
        except OutOfRoom as error:
            unwritten = len(waiting) - error.kept
            if unwritten <= len(lines):
                self.lost = 0  # at least the notice came through
            lost = min(len(lines), unwritten)
            self.reason = str(error)
            self.lost += lost
            self.lost_in_all += lost

    def _append(self, lines: list[bytes]) -> None:
        """Raises OutOfRoom; then whole lines only have been written: the next is not glued to half of one."""
        block = b"".join(lines)
        written = 0
        try:
            if self.descriptor < 0 or (self.size and self.size + len(block) > self.limit):
                self._turn()
            while written < len(block):
                written += os.write(self.descriptor, block[written:])
        except OSError as error:
            whole = block.rfind(b"\n", 0, written) + 1
            self.size += whole
            with contextlib.suppress(OSError):
                os.ftruncate(self.descriptor, self.size)
            raise OutOfRoom(error.strerror or str(error), kept=block.count(b"\n", 0, whole)) from error
        self.size += len(block)

    def _turn(self) -> None:
        if self.descriptor >= 0:
            with contextlib.suppress(FileNotFoundError):  # an earlier turn got only so far
                os.replace(self.path, self.path + ".1")
        fresh = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = fresh
        self.size = os.fstat(fresh).st_size


def blocks(lines: list[bytes], limit: int) -> list[list[bytes]]:
    """The lines in their order, in portions that each fit into one file."""
    portions: list[list[bytes]] = [[]]
    room = limit
    for line in lines:
        if len(line) > room and portions[-1]:
            portions.append([])
            room = limit
        portions[-1].append(line)
        room -= len(line)
    return portions


def unseen(stream: bytes, data: bytes) -> None:
    """Nobody looks."""


class Stream:
    """stdout or stderr of the container, cut into CRI lines: F ends a line, P is a piece of one."""

    def __init__(self, descriptor: int, name: bytes, log: Log, show: Callable[[bytes, bytes], None] = unseen) -> None:
        self.descriptor = descriptor
        self.name = name
        self.log = log
        self.show = show
        self.rest = b""
        self.is_open = True
        os.set_blocking(descriptor, False)

    def read(self) -> bool:
        """Whether there was something."""
        try:
            data = os.read(self.descriptor, READ)
        except BlockingIOError:
            return False
        except OSError:  # a terminal that nobody has open any more
            data = b""
        if not data:
            self.close()
            return False
        self.show(self.name, data)
        self._absorb(data)
        return True

    def _absorb(self, data: bytes) -> None:
        *whole, self.rest = (self.rest + data).split(b"\n")
        stamp = self.log.stamp() + self.name
        lines: list[bytes] = []
        for line in whole:
            while len(line) > CHUNK:
                lines.append(stamp + b" P " + line[:CHUNK] + b"\n")
                line = line[CHUNK:]  # noqa: PLW2901
            lines.append(stamp + b" F " + line + b"\n")
        while len(self.rest) > CHUNK:
            lines.append(stamp + b" P " + self.rest[:CHUNK] + b"\n")
            self.rest = self.rest[CHUNK:]
        self.log.write(lines)

    def flush(self) -> None:
        if self.rest:
            self.log.write([self.log.stamp() + self.name + b" P " + self.rest + b"\n"])
            self.rest = b""

    def close(self) -> None:
        if self.is_open:
            self.flush()
            self.is_open = False
            os.close(self.descriptor)


# ------------------------------------------------------------------------------------------------- starting the command


def found_on_path(name: str, path: str) -> str:
    """As runc looks it up. Raises StartError."""
    refused = False
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder or ".", name)
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            refused = True
    if refused:
        raise StartError(f'exec: "{name}": permission denied')
    raise StartError(f'exec: "{name}": executable file not found in $PATH')


def execute(argv: list[str], env: dict[str, str], cwd: str) -> None:
    """Becomes the command; returns never. Raises StartError."""
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
        raise StartError(explained(error, name, program)) from error
    except ValueError as error:  # a NUL, or a name with `=`
        raise StartError(f'exec: "{name}": {error}') from error


def explained(error: OSError, name: str, program: str) -> str:
    if error.errno == errno.ENOENT and os.path.exists(program):
        return f'exec: "{name}": the file is there, but the interpreter that its first line names is not'
    if error.errno == errno.ENOENT:
        return f'exec: "{name}": stat {name}: no such file or directory'
    if error.errno == errno.E2BIG:
        return f'exec: "{name}": argument list too long: one argument or variable may have 128 KiB'
    return f'exec: "{name}": {(error.strerror or str(error)).lower()}'


class Terms:
    """How a process of the container is started: what with, where, and on which streams."""

    def __init__(self, spec: dict[str, object], streams: tuple[int, int, int], terminal: bool) -> None:  # noqa: FBT001
        self.argv: list[str] = list(spec["argv"])  # type: ignore[call-overload]
        self.env: dict[str, str] = dict(spec["env"])  # type: ignore[call-overload]
        self.cwd = str(spec["cwd"])
        self.streams = streams
        self.terminal = terminal
        if terminal:
            self.env.setdefault("TERM", "xterm")


def become_the_command(terms: Terms, report: int, shim: int) -> None:
    """In the child: never returns."""
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != shim:  # the shim died before the line above took effect
            os._exit(START_ERROR)
        for signum in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT):
            signal.signal(signum, signal.SIG_DFL)  # what is ignored stays ignored in the new program
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("500")  # when memory runs out, the kernel shall take a container and not who supervises it
        for target, stream in enumerate(terms.streams):
            os.dup2(stream, target)
        if terms.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        execute(terms.argv, terms.env, terms.cwd)
    except StartError as error:
        os.write(report, str(error).encode()[:NOTE])
    except OSError as error:
        os.write(report, f"starting the process failed: {error}".encode()[:NOTE])
    finally:
        os._exit(START_ERROR)


def spawn(terms: Terms) -> int:
    """The pid of the process. Raises StartError when the command cannot be executed."""
    report, report_end = os.pipe()
    shim = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(report)
        raise
    else:
        if pid == 0:
            become_the_command(terms, report_end, shim)
    finally:
        os.close(report_end)
    words = os.read(report, NOTE).decode(errors="replace")  # empty as soon as the command runs: close-on-exec
    os.close(report)
    if words:
        os.waitpid(pid, 0)
        raise StartError(words)
    return pid


class Pipes:
    """The streams of the container's own process. `stdin` is where to write to, -1 where nothing can be."""

    def __init__(self, spec: dict[str, object]) -> None:
        self.terminal = bool(spec.get("tty"))
        self.stdin = -1
        if self.terminal:
            out, slave = os.openpty()
            self.outputs = [(out, b"stdout")]
            self.theirs = (slave, slave, slave)
            if spec.get("stdin"):
                self.stdin = os.dup(out)
            return
        given, self.stdin = os.pipe() if spec.get("stdin") else (os.open(os.devnull, os.O_RDONLY), -1)
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        self.outputs = [(out, b"stdout"), (err, b"stderr")]
        self.theirs = (given, out_end, err_end)

    def handed_over(self) -> None:
        for descriptor in set(self.theirs):
            os.close(descriptor)

    def close_stdin(self) -> None:
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1


# ---------------------------------------------------------------------------------------------------------- supervision


class Supervisor(guests.House):
    """One container from its start to its record."""

    def __init__(self, folder: str, spec: dict[str, object]) -> None:
        self.folder = folder
        self.spec = spec
        self.mark = f"{MARK}={spec['id']}"
        self.log = Log(str(spec["log"]), int(str(spec["log_bytes"])))
        self.record = Record(folder, str(spec["id"]))
        self.main = 0
        self.status: int | None = None
        self.peak_kib = 0
        self.finished = 0
        self.stop_wanted = False
        self.was_stopped = False
        self.deadline: float | None = None
        self.looked = time.monotonic()
        self.streams: list[Stream] = []
        self.pipes = Pipes(spec)
        self.guests = guests.Guests(folder, self)
        self.wake, wake_end = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake_end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._asked_to_stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for signum in (signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the kubelet starts us with SIGTERM held back until here

    def _asked_to_stop(self, *_: object) -> None:
        self.stop_wanted = True

    def run(self) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.record.starting()
        self.log.create()
        started = time.time_ns()
        try:
            self.main = spawn(Terms(self.spec, self.pipes.theirs, self.pipes.terminal))
        except StartError as error:
            self.record.exited(code=START_ERROR, signal=0, started=0, finished=time.time_ns(), error=str(error))
            return
        self.pipes.handed_over()
        self.streams = [Stream(out, name, self.log, self.guests.show) for out, name in self.pipes.outputs]
        self.record.running(self.main, started)
        tell_the_kubelet()
        while self.status is None:
            self._step()
        self._hear_whether_all_are_told()
        self._end_the_tree()
        self._drain()
        self.record.exited(started=started, finished=self.finished, **self._outcome())
        self.guests.farewell()

    def _hear_whether_all_are_told(self) -> None:
        """A machine that shuts down sends SIGTERM to all, in any order: who dies of it may have heard it first."""
        if os.WIFSIGNALED(self.status or 0) and os.WTERMSIG(self.status or 0) == signal.SIGTERM:
            poll = select.poll()
            poll.register(self.wake, select.POLLIN)
            until = time.monotonic() + LISTEN_SECONDS
            while not (self.was_stopped or self.stop_wanted) and (left := until - time.monotonic()) > 0:
                poll.poll(left * 1000)
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake, READ)

    def _outcome(self) -> dict[str, object]:
        code = os.waitstatus_to_exitcode(self.status or 0)
        return {
            "code": code if code >= 0 else 128 - code,
            "signal": max(0, -code),
            "stopped": self.was_stopped or self.stop_wanted,
            "peak_rss": self.peak_kib * (1024 if LINUX else 1),
            "lost_lines": self.log.lost_in_all,
        }

    def _step(self) -> None:
        """Wait for output, a signal or the end of the grace period; deal with what there is."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        self.guests.watch(poll)
        listened = [] if self.guests.are_behind else self.streams
        by_descriptor = {stream.descriptor: stream for stream in listened if stream.is_open}
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(self._patience())]
        for descriptor in ready:
            if descriptor in by_descriptor:
                by_descriptor[descriptor].read()
        if not ready:
            for stream in self.streams:
                stream.flush()
        self.guests.attend(ready)
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, READ)
        self._heed_the_stop()
        self._reap()

    def _heed_the_stop(self) -> None:
        if self.stop_wanted or self._is_forgotten():
            self.stop_wanted = False
            self._stop()
        if self.deadline is not None and time.monotonic() >= self.deadline:
            kill_group(self.main, signal.SIGKILL)
            for pid in descendants(os.getpid()):
                kill(pid, signal.SIGKILL)

    def _patience(self) -> float:
        """Milliseconds until something is due by itself."""
        seconds = [LOOK_SECONDS]
        if any(stream.rest for stream in self.streams):
            seconds.append(FLUSH_SECONDS)
        if self.deadline is not None:
            # After SIGKILL nothing is left but to wait for the kernel; look again now and then.
            seconds.append(max(0.05, self.deadline - time.monotonic()))
        return min(seconds) * 1000

    def _is_forgotten(self) -> bool:
        """Somebody has removed the folder: no kubelet will ever ask for this container, or end it."""
        now = time.monotonic()
        if self.was_stopped or now < self.looked + LOOK_SECONDS:
            return False
        self.looked = now
        return not os.path.exists(self.record.path)

    def _stop(self) -> None:
        try:
            with open(os.path.join(self.folder, "stop.json"), encoding="utf-8") as file:
                grace = float(json.load(file)["grace"])
        except (OSError, ValueError, KeyError, TypeError):
            grace = float(str(self.spec["grace"]))
        deadline = time.monotonic() + grace
        self.was_stopped = True
        self.deadline = deadline if self.deadline is None else min(self.deadline, deadline)
        kill_group(self.main, signal.SIGTERM)

    def _reap(self) -> None:
        """Collect everybody who has ended: orphans of the container come here, too."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.main:
                self.status = status
                self.finished = time.time_ns()
                self.peak_kib = usage.ru_maxrss
            else:
                code = os.waitstatus_to_exitcode(status)
                self.guests.ended(pid, code if code >= 0 else 128 - code)

    def _end_the_tree(self) -> None:
        """A container ends with its main process: whatever it has left behind is killed, and nobody is overlooked."""
        kill_group(self.main, signal.SIGKILL)
        given_up = time.monotonic() + KILL_SECONDS
        while time.monotonic() < given_up:
            self._reap()
            left = descendants(os.getpid()) or marked(self.mark.encode() + b"\0")
            if not left:
                return
            for pid in left:
                kill(pid, signal.SIGKILL)
            self._read_all()  # so that nobody hangs in a write
            time.sleep(0.002)

    # --- what guests need

    def spawn(self, argv: list[str], streams: tuple[int, int, int], tty: bool) -> int:  # noqa: FBT001 - a fact
        try:
            return spawn(Terms({**self.spec, "argv": argv}, streams, tty))
        except (StartError, OSError) as error:
            raise guests.Refused(str(error)) from error

    def end_tree(self, pid: int) -> None:
        """It is a child of ours that has not been reaped, so nobody else can have its pid."""
        for each in [*descendants(pid), pid]:
            kill(each, signal.SIGKILL)

    def hang_up(self, pid: int) -> None:
        kill(pid, signal.SIGHUP)

    def stdin(self) -> int:
        return self.pipes.stdin

    def close_stdin(self) -> None:
        if self.spec.get("stdin_once") and not self.pipes.terminal:
            self.pipes.close_stdin()

    def _read_all(self) -> None:
        for stream in self.streams:
            for _ in range(64):  # a pipe holds less than this; who still writes must not keep us here
                if not (stream.is_open and stream.read()):
                    break

    def _drain(self) -> None:
        self._read_all()
        for stream in self.streams:
            stream.close()


def tell_the_kubelet() -> None:
    """By closing stdout: whoever waits at the other end wakes."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def close_what_was_inherited() -> None:
    """Not os.closerange: where a process may have a billion files, some Pythons try them all."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2:  # noqa: PLR2004 - the standard streams
            with contextlib.suppress(OSError):
                os.close(int(name))


def has_ended(folder: str) -> bool:
    try:
        with open(os.path.join(folder, "state.json"), encoding="utf-8") as file:
            return bool(json.load(file)["phase"] == "exited")
    except FileNotFoundError:
        return False


def main(folder: str) -> int:
    close_what_was_inherited()
    os.umask(0o022)
    with contextlib.suppress(PermissionError):  # it leads a session already
        os.setsid()
    place = os.path.join(folder, "lock")
    lock = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 3  # another shim runs it
    if has_ended(folder):
        return 3  # a kubelet came first and has given this container up
    with open(os.path.join(folder, "spec.json"), encoding="utf-8") as file:
        spec = json.load(file)
    if not os.path.samestat(os.fstat(lock), os.stat(place)):
        return 3  # given up and removed, and what is here now is another attempt, which has a shim of its own
    spec["env"][MARK] = spec["id"]
    Supervisor(folder, spec).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
