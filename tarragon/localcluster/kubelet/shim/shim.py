"""Supervises one container: starts its command, writes its log, ends its process tree, records its exit.

Runs as a separate program, `python -I -S shim.py FOLDER`, one for each container, so that containers outlive the
kubelet. It imports only a little of the standard library and the modules beside it, to start in milliseconds and to
use little memory.

In FOLDER:  spec.json   what to run (read)            lock        held while this process lives
            state.json  starting, running, exited     stop.json   {"grace": seconds}, read at every SIGTERM
            guests      a socket: see exec_server.py
The kubelet holds the other end of stdout, which is closed when state.json says `running` or `exited`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import time

if __package__:
    from tarragon.localcluster.kubelet.base import processes
    from tarragon.localcluster.kubelet.shim import cri_log, exec_server, execution
else:  # run as a program: `-I` and `-S` leave only the standard library on the path
    sys.path.append(os.path.dirname(sys.argv[0]))
    import cri_log  # type: ignore[import-not-found,no-redef]
    import exec_server  # type: ignore[import-not-found,no-redef]
    import execution  # type: ignore[import-not-found,no-redef]
    import processes  # type: ignore[import-not-found,no-redef]

MARK_VARIABLE = "TARRAGON_CONTAINER_ID"
FLUSH_SECONDS = 0.25  # how long an unfinished line (a progress bar) may stay out of the log
FOLDER_CHECK_SECONDS = 5.0  # between two checks that the folder still exists
SIGTERM_WAIT_SECONDS = 0.25
KILL_SECONDS = 10.0  # the longest wait for killed processes, as uninterruptible sleep cannot be killed
STATE_BYTES = 8 * 1024  # bytes reserved at the start, so that the exit can be recorded on a full disk


def write_atomically(path: str, text: str) -> None:
    temporary = path + ".new"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


class StateFile:
    """Writes state.json atomically at each step; the last step is synced to the disk."""

    def __init__(self, folder: str, identity: str) -> None:
        self.path = os.path.join(folder, "state.json")
        self.reserve = os.path.join(folder, "state.reserved")
        pid = os.getpid()
        self.facts: dict[str, object] = {
            "id": identity,
            "boot": processes.boot_id(),
            "shim": {"pid": pid, "start": processes.start_time(pid)},
        }

    def starting(self) -> None:
        write_atomically(self.path, json.dumps({**self.facts, "phase": "starting"}))
        with open(self.reserve, "wb") as file:
            file.write(b" " * STATE_BYTES)

    def running(self, pid: int, started: int) -> None:
        self.facts |= {"main": {"pid": pid, "start": processes.start_time(pid)}, "started": started}
        # If this fails on a full disk, the container stays `starting` for the kubelet until it has ended.
        with contextlib.suppress(OSError):
            write_atomically(self.path, json.dumps({**self.facts, "phase": "running"}))

    def exited(self, **outcome: object) -> None:
        self.facts |= outcome
        text = json.dumps({**self.facts, "phase": "exited"}).encode().ljust(STATE_BYTES)
        for _ in range(600):
            try:
                return self._finish(text)
            except FileNotFoundError:
                return None  # the folder was removed, so the record is not needed
            except OSError:
                time.sleep(1)
        return None

    def _finish(self, text: bytes) -> None:
        descriptor = os.open(self.reserve, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, text)  # padded with spaces to overwrite exactly the reserved blocks
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(self.reserve, self.path)


class Supervisor(exec_server.ContainerOperations):
    """Supervises one container from its start until its exit is recorded."""

    def __init__(self, folder: str, spec: dict[str, object]) -> None:
        self.folder = folder
        self.spec = spec
        self.mark = f"{MARK_VARIABLE}={spec['id']}"
        self.log = cri_log.LogWriter(str(spec["log"]), int(str(spec["log_bytes"])))
        self.record = StateFile(folder, str(spec["id"]))
        self.main = 0
        self.status: int | None = None
        self.peak_kib = 0
        self.finished = 0
        self.stop_wanted = False
        self.was_stopped = False
        self.deadline: float | None = None
        self.looked = time.monotonic()
        self.streams: list[cri_log.CriStream] = []
        self.pipes = execution.StandardStreams(spec)
        self.exec_server = exec_server.ExecServer(folder, self)
        self.wake, wake_end = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake_end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for signum in (signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the kubelet starts the shim with SIGTERM blocked

    def _on_sigterm(self, *_: object) -> None:
        self.stop_wanted = True

    def run(self) -> None:
        execution.prctl(execution.PR_SET_CHILD_SUBREAPER, 1)
        self.record.starting()
        self.log.create()
        started = time.time_ns()
        try:
            self.main = execution.spawn(execution.ProcessSpec(self.spec, self.pipes.child_ends, self.pipes.terminal))
        except execution.StartError as error:
            now = time.time_ns()
            self.record.exited(code=execution.START_ERROR, signal=0, started=0, finished=now, error=str(error))
            return
        self.pipes.close_child_ends()
        self.streams = [
            cri_log.CriStream(out, name, self.log, self.exec_server.write_output) for out, name in self.pipes.outputs
        ]
        self.record.running(self.main, started)
        signal_kubelet()
        while self.status is None:
            self._step()
        self._await_sigterm()
        self._kill_process_tree()
        self._drain()
        self.record.exited(started=started, finished=self.finished, **self._outcome())
        self.exec_server.close()

    def _await_sigterm(self) -> None:
        """After a death by SIGTERM, wait whether it reaches the shim too.

        A machine that shuts down sends SIGTERM to all processes, in any order.
        """
        if os.WIFSIGNALED(self.status or 0) and os.WTERMSIG(self.status or 0) == signal.SIGTERM:
            poll = select.poll()
            poll.register(self.wake, select.POLLIN)
            until = time.monotonic() + SIGTERM_WAIT_SECONDS
            while not (self.was_stopped or self.stop_wanted) and (left := until - time.monotonic()) > 0:
                poll.poll(left * 1000)
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake, cri_log.READ)

    def _outcome(self) -> dict[str, object]:
        code = os.waitstatus_to_exitcode(self.status or 0)
        return {
            "code": code if code >= 0 else 128 - code,
            "signal": max(0, -code),
            "stopped": self.was_stopped or self.stop_wanted,
            "peak_rss": self.peak_kib * (1024 if processes.LINUX else 1),
            "lost_lines": self.log.total_lost,
        }

    def _step(self) -> None:
        """Wait for output, a signal or the end of the grace period, and handle it."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        self.exec_server.register(poll)
        readable_streams = [] if self.exec_server.has_pending_output else self.streams
        by_descriptor = {stream.descriptor: stream for stream in readable_streams if stream.is_open}
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(self._poll_milliseconds())]
        for descriptor in ready:
            if descriptor in by_descriptor:
                by_descriptor[descriptor].read()
        if not ready:
            for stream in self.streams:
                stream.flush()
        self.exec_server.handle_ready(ready)
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, cri_log.READ)
        self._enforce_stop()
        self._reap()

    def _enforce_stop(self) -> None:
        if self.stop_wanted or self._was_folder_removed():
            self.stop_wanted = False
            self._stop()
        if self.deadline is not None and time.monotonic() >= self.deadline:
            processes.kill_group(self.main, signal.SIGKILL)
            for pid in processes.descendants(os.getpid()):
                processes.kill(pid, signal.SIGKILL)

    def _poll_milliseconds(self) -> float:
        """How long `poll` may wait before something is due."""
        seconds = [FOLDER_CHECK_SECONDS]
        if any(stream.unfinished_line for stream in self.streams):
            seconds.append(FLUSH_SECONDS)
        if self.deadline is not None:
            # After SIGKILL, only the kernel remains to be waited for; check again now and then.
            seconds.append(max(0.05, self.deadline - time.monotonic()))
        return min(seconds) * 1000

    def _was_folder_removed(self) -> bool:
        """Whether the folder was removed: then no kubelet will ever end this container."""
        now = time.monotonic()
        if self.was_stopped or now < self.looked + FOLDER_CHECK_SECONDS:
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
        processes.kill_group(self.main, signal.SIGTERM)

    def _reap(self) -> None:
        """Reap all ended children; the container's orphans are among them."""
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
                self.exec_server.report_exit(pid, code if code >= 0 else 128 - code)

    def _kill_process_tree(self) -> None:
        """Kill every process of the container, as a container ends with its main process."""
        processes.kill_group(self.main, signal.SIGKILL)
        deadline = time.monotonic() + KILL_SECONDS
        while time.monotonic() < deadline:
            self._reap()
            left = processes.descendants(os.getpid()) or processes.pids_with_mark(self.mark.encode() + b"\0")
            if not left:
                self._reap()  # the last ones may have become zombies since, and clients wait for their exit codes
                return
            for pid in left:
                processes.kill(pid, signal.SIGKILL)
            self._read_all()  # so that no process blocks in a write
            time.sleep(0.002)

    # --- for exec and attach

    def spawn(self, argv: list[str], streams: tuple[int, int, int], tty: bool) -> int:  # noqa: FBT001 - a fact
        try:
            return execution.spawn(execution.ProcessSpec({**self.spec, "argv": argv}, streams, tty))
        except (execution.StartError, OSError) as error:
            raise exec_server.CannotSpawn(str(error)) from error

    def end_tree(self, pid: int) -> None:
        """Kill a child, its group and its descendants. It has not been reaped, so no other process can have its pid."""
        descendants = processes.descendants(pid)
        processes.kill_group(pid, signal.SIGKILL)  # also those started since, and where descendants cannot be listed
        for each in [*descendants, pid]:
            processes.kill(each, signal.SIGKILL)

    def hang_up(self, pid: int) -> None:
        processes.kill(pid, signal.SIGHUP)

    def stdin(self) -> int:
        return self.pipes.stdin

    def close_stdin(self) -> None:
        if self.spec.get("stdin_once") and not self.pipes.terminal:
            self.pipes.close_stdin()

    def _read_all(self) -> None:
        for stream in self.streams:
            for _ in range(64):  # more than a pipe holds; a process that still writes must not block the shim
                if not (stream.is_open and stream.read()):
                    break

    def _drain(self) -> None:
        self._read_all()
        for stream in self.streams:
            stream.close()


def signal_kubelet() -> None:
    """Close stdout, which wakes the kubelet at the other end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def close_inherited_descriptors() -> None:
    """Close inherited descriptors. With a limit of a billion files, os.closerange tries them all in some Pythons."""
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
    close_inherited_descriptors()
    os.umask(0o022)
    with contextlib.suppress(PermissionError):  # already a session leader
        os.setsid()
    lock_path = os.path.join(folder, "lock")
    lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 3  # another shim runs it
    if has_ended(folder):
        return 3  # a kubelet has given this container up meanwhile
    with open(os.path.join(folder, "spec.json"), encoding="utf-8") as file:
        spec = json.load(file)
    if not os.path.samestat(os.fstat(lock), os.stat(lock_path)):
        return 3  # the folder was given up and replaced by a new attempt, which has its own shim
    spec["env"][MARK_VARIABLE] = spec["id"]
    Supervisor(folder, spec).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
