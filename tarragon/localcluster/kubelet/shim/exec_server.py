"""The shim's server for exec (further commands in the container) and attach (viewing its output).

The shim imports this module outside the package, so it uses only the standard library. A client connects to the socket
in the container's folder, sends a line of JSON with descriptors, and receives a reply:

    {"exec": [word, ...], "tty": false}, stdin, stdout, stderr    {"pid": 7}, later {"code": 0}; or {"error": text}
    {"attach": true}, descriptors for stdout and stderr           {"attached": true}, and stdin if there is one

A command ends with its connection, so unlike the container's own process it never outlives the kubelet that started
it. `{"eof": true}` closes the stdin of an attached client.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time

SOCKET = "guests"
MAX_REQUEST_BYTES = 4 * 2**20
"""The longest request: twice what Linux accepts as a command line by default."""
MAX_DESCRIPTORS = 3
ATTACH_STALL_SECONDS = 30.0
"""How long an attached client that reads nothing may block the container, as with any runtime."""
HANGUP_SECONDS = 5.0
"""From the hangup of a terminal to the kill of a command that did not end."""
DRAIN_SECONDS = 5.0
BACKLOG = 512


class CannotSpawn(Exception):
    """The command could not be started; the message is for the client."""


class ContainerOperations:
    """The operations on the container that its clients need."""

    def spawn(self, argv: list[str], streams: tuple[int, int, int], tty: bool) -> int:  # noqa: FBT001 - a fact
        """Start a command, and return its pid. Raises CannotSpawn."""
        raise NotImplementedError

    def end_tree(self, pid: int) -> None:
        raise NotImplementedError

    def hang_up(self, pid: int) -> None:
        raise NotImplementedError

    def stdin(self) -> int:
        """The write end of the container's stdin; -1 when it has none or it is closed."""
        raise NotImplementedError

    def close_stdin(self) -> None:
        """Note that a client has finished writing to stdin."""
        raise NotImplementedError


class AttachedStream:
    """One output stream of the container, for one client. While a chunk is pending, the container waits."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.pending = b""
        self.since = 0.0

    def write(self, data: bytes) -> None:
        if self.descriptor >= 0:
            if not self.pending:
                self.since = time.monotonic()
            self.pending += data
            self.flush()

    def flush(self) -> None:
        try:
            while self.pending:
                self.pending = self.pending[os.write(self.descriptor, self.pending) :]
                self.since = time.monotonic()
        except BlockingIOError:
            if time.monotonic() > self.since + ATTACH_STALL_SECONDS:
                self.close()
        except OSError:  # the client has gone
            self.close()

    def close(self) -> None:
        self.pending = b""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class ExecConnection:
    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.received = b""
        self.descriptors: list[int] = []
        self.attached: dict[bytes, AttachedStream] = {}
        self.pid = 0
        self.tty = False
        self.has_stdin = False

    def receive(self) -> bool:
        """Receive data and descriptors. False when the client has disconnected or sent too much."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.connection, 64 * 1024, MAX_DESCRIPTORS)
        except BlockingIOError:
            return True
        except OSError:
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self.descriptors += descriptors
        self.received += data
        return bool(data) and len(self.received) <= MAX_REQUEST_BYTES

    def lines(self) -> list[bytes]:
        *whole, self.received = self.received.split(b"\n")
        return whole

    def reply(self, answer: dict[str, object], descriptors: tuple[int, ...] = ()) -> None:
        """Send a reply: a few bytes, for which the empty socket buffer always has room."""
        with contextlib.suppress(OSError):
            socket.send_fds(self.connection, [json.dumps(answer).encode() + b"\n"], descriptors)

    def drop_descriptors(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []

    def close(self) -> None:
        self.drop_descriptors()
        for viewer in self.attached.values():
            viewer.close()
        self.connection.close()


class ExecServer:
    """The clients of one container."""

    def __init__(self, folder: str, house: ContainerOperations) -> None:
        self.container = house
        self.connections: dict[int, ExecConnection] = {}
        self.hung_up: dict[int, float] = {}
        self.listener = _listen(folder)

    @property
    def has_pending_output(self) -> bool:
        """Whether a client has output pending that it has not read yet."""
        return any(viewer.pending for viewer in self._viewers())

    def _viewers(self) -> list[AttachedStream]:
        return [viewer for guest in self.connections.values() for viewer in guest.attached.values()]

    def register(self, poll: select.poll) -> None:
        if self.listener is not None:
            poll.register(self.listener, select.POLLIN)
        for descriptor in self.connections:
            poll.register(descriptor, select.POLLIN)
        for viewer in self._viewers():
            if viewer.pending:
                poll.register(viewer.descriptor, select.POLLOUT)

    def handle_ready(self, ready: list[int]) -> None:
        """Handle what a poll found: output to write, requests, new connections, commands to kill."""
        for viewer in self._viewers():
            if viewer.pending:
                viewer.flush()
        for descriptor in ready:
            if descriptor in self.connections:
                self._receive(self.connections[descriptor])
        if self.listener is not None and self.listener.fileno() in ready:
            self._accept(self.listener)
        for pid, deadline in self.hung_up.items():
            if time.monotonic() > deadline:
                self.container.end_tree(pid)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client has gone, or no descriptor is left
            guest = ExecConnection(listener.accept()[0])
            self.connections[guest.connection.fileno()] = guest

    def _receive(self, guest: ExecConnection) -> None:
        is_connected = guest.receive()
        for line in guest.lines():
            try:
                self._handle(guest, line)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                # The client may be of another version: the container goes on.
                guest.reply({"error": f"the container's supervisor does not understand this request: {error!r}"})
                is_connected = False
        if not is_connected:
            self._disconnect(guest)

    def _handle(self, guest: ExecConnection, line: bytes) -> None:
        request = json.loads(line)
        if "exec" in request:
            self._execute(guest, request)
        elif "attach" in request:
            self._attach(guest)
        elif "eof" in request:
            self._end_of_stdin(guest)
        else:
            raise ValueError(line[:100])

    def _execute(self, guest: ExecConnection, request: dict[str, object]) -> None:
        stdin, stdout, stderr = guest.descriptors  # a ValueError if too many files are open to receive them all
        guest.tty = bool(request["tty"])
        try:
            guest.pid = self.container.spawn(list(request["exec"]), (stdin, stdout, stderr), guest.tty)  # type: ignore[call-overload]
        except CannotSpawn as refused:
            guest.reply({"error": str(refused)})
        else:
            guest.reply({"pid": guest.pid})
        guest.drop_descriptors()

    def _attach(self, guest: ExecConnection) -> None:
        guest.attached = dict(zip((b"stdout", b"stderr"), map(AttachedStream, guest.descriptors), strict=False))
        guest.descriptors = []
        stdin = self.container.stdin()
        guest.has_stdin = stdin >= 0
        guest.reply({"attached": True}, (stdin,) if guest.has_stdin else ())

    def _end_of_stdin(self, guest: ExecConnection) -> None:
        if guest.has_stdin:
            guest.has_stdin = False
            self.container.close_stdin()

    def _disconnect(self, guest: ExecConnection) -> None:
        self.connections.pop(guest.connection.fileno(), None)
        self._end_of_stdin(guest)
        guest.close()
        if guest.pid and guest.tty:
            self.container.hang_up(guest.pid)
            self.hung_up[guest.pid] = time.monotonic() + HANGUP_SECONDS
        elif guest.pid:
            self.container.end_tree(guest.pid)

    def write_output(self, stream: bytes, data: bytes) -> None:
        """Pass output of the container on to its attached clients."""
        for guest in self.connections.values():
            if stream in guest.attached:
                guest.attached[stream].write(data)

    def report_exit(self, pid: int, code: int) -> None:
        """Report the exit code, if the reaped process was a client's command."""
        self.hung_up.pop(pid, None)
        for guest in list(self.connections.values()):
            if guest.pid == pid:
                guest.pid = 0
                guest.reply({"code": code})
                self.connections.pop(guest.connection.fileno())
                guest.close()

    def close(self) -> None:
        """Deliver the last output to attached clients, and disconnect all, as the container has ended."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None
        deadline = time.monotonic() + DRAIN_SECONDS
        while self.has_pending_output and (left := deadline - time.monotonic()) > 0:
            poll = select.poll()
            for viewer in self._viewers():
                if viewer.pending:
                    poll.register(viewer.descriptor, select.POLLOUT)
            poll.poll(left * 1000)
            for viewer in self._viewers():
                viewer.flush()
        for guest in self.connections.values():
            guest.close()
        self.connections = {}


def _listen(folder: str) -> socket.socket | None:
    """Listen at the folder's socket; None on a full disk.

    A socket's path is limited to about 100 bytes, so it is bound from within the folder.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    previous_folder = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.chdir(folder)
        with contextlib.suppress(FileNotFoundError):
            os.remove(SOCKET)
        listener.bind(SOCKET)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        return None
    else:
        return listener
    finally:
        os.fchdir(previous_folder)
        os.close(previous_folder)
