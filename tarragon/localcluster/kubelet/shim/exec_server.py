"""Who comes into a container while it runs: commands beside its own (exec), and viewers of what it says (attach).

A part of the shim, of a file of its own: the standard library only. A guest is a connection to the socket in the
container's folder. It says a line of JSON, with descriptors, and is answered:

    {"exec": [word, ...], "tty": false}, stdin, stdout, stderr    {"pid": 7}, later {"code": 0}; or {"error": words}
    {"attach": true}, where to write stdout and stderr to         {"attached": true}, and stdin if there is one

A command ends with its connection, so it never outlives the kubelet that wanted it; a container's own process does.
`{"eof": true}` says that an attached guest has nothing more for stdin.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time

SOCKET = "guests"
LINE = 4 * 2**20
"""Linux takes no longer command line by default than half of this."""
MOST_DESCRIPTORS = 3
VIEWER_SECONDS = 30.0
"""A viewer who takes nothing holds the container up, as with any runtime; but not for longer than this."""
HANGUP_SECONDS = 5.0
"""From the hangup of a terminal to the kill of who has not heeded it."""
FAREWELL_SECONDS = 5.0
BACKLOG = 512


class Refused(Exception):
    """The command could not be started; the words are for the guest."""


class House:
    """What guests need of their container."""

    def spawn(self, argv: list[str], streams: tuple[int, int, int], tty: bool) -> int:  # noqa: FBT001 - a fact
        """The pid of the command. Raises Refused."""
        raise NotImplementedError

    def end_tree(self, pid: int) -> None:
        raise NotImplementedError

    def hang_up(self, pid: int) -> None:
        raise NotImplementedError

    def stdin(self) -> int:
        """-1 where the container has none that is open."""
        raise NotImplementedError

    def close_stdin(self) -> None:
        """Nobody writes there any more."""
        raise NotImplementedError


class Viewer:
    """One stream of the container, for one guest. At most one read is kept for it: then the container waits."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.pending = b""
        self.since = 0.0

    def show(self, data: bytes) -> None:
        if self.descriptor >= 0:
            if not self.pending:
                self.since = time.monotonic()
            self.pending += data
            self.go_on()

    def go_on(self) -> None:
        try:
            while self.pending:
                self.pending = self.pending[os.write(self.descriptor, self.pending) :]
                self.since = time.monotonic()
        except BlockingIOError:
            if time.monotonic() > self.since + VIEWER_SECONDS:
                self.close()
        except OSError:  # it looks no more
            self.close()

    def close(self) -> None:
        self.pending = b""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Guest:
    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.heard = b""
        self.descriptors: list[int] = []
        self.viewers: dict[bytes, Viewer] = {}
        self.pid = 0
        self.tty = False
        self.has_stdin = False

    def hear(self) -> bool:
        """Whether the guest is still there."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.connection, 64 * 1024, MOST_DESCRIPTORS)
        except BlockingIOError:
            return True
        except OSError:
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self.descriptors += descriptors
        self.heard += data
        return bool(data) and len(self.heard) <= LINE

    def lines(self) -> list[bytes]:
        *whole, self.heard = self.heard.split(b"\n")
        return whole

    def tell(self, answer: dict[str, object], descriptors: tuple[int, ...] = ()) -> None:
        """A few bytes, into a buffer that nothing else has filled."""
        with contextlib.suppress(OSError):
            socket.send_fds(self.connection, [json.dumps(answer).encode() + b"\n"], descriptors)

    def drop_descriptors(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []

    def close(self) -> None:
        self.drop_descriptors()
        for viewer in self.viewers.values():
            viewer.close()
        self.connection.close()


class Guests:
    """All guests of one container."""

    def __init__(self, folder: str, house: House) -> None:
        self.house = house
        self.present: dict[int, Guest] = {}
        self.leaving: dict[int, float] = {}
        self.door = _door(folder)

    @property
    def are_behind(self) -> bool:
        """Somebody has not taken yet what the container has said."""
        return any(viewer.pending for viewer in self._viewers())

    def _viewers(self) -> list[Viewer]:
        return [viewer for guest in self.present.values() for viewer in guest.viewers.values()]

    def watch(self, poll: select.poll) -> None:
        if self.door is not None:
            poll.register(self.door, select.POLLIN)
        for descriptor in self.present:
            poll.register(descriptor, select.POLLIN)
        for viewer in self._viewers():
            if viewer.pending:
                poll.register(viewer.descriptor, select.POLLOUT)

    def attend(self, ready: list[int]) -> None:
        """Do what there is to do after a poll."""
        for viewer in self._viewers():
            if viewer.pending:
                viewer.go_on()
        for descriptor in ready:
            if descriptor in self.present:
                self._hear(self.present[descriptor])
        if self.door is not None and self.door.fileno() in ready:
            self._let_in(self.door)
        for pid, deadline in self.leaving.items():
            if time.monotonic() > deadline:
                self.house.end_tree(pid)

    def _let_in(self, door: socket.socket) -> None:
        with contextlib.suppress(OSError):  # none there any more, or no descriptor left for it
            guest = Guest(door.accept()[0])
            self.present[guest.connection.fileno()] = guest

    def _hear(self, guest: Guest) -> None:
        is_there = guest.hear()
        for line in guest.lines():
            try:
                self._heed(guest, line)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                # It may be of another version: no reason to end anything.
                guest.tell({"error": f"the container's supervisor does not understand this: {error!r}"})
                is_there = False
        if not is_there:
            self._take_leave(guest)

    def _heed(self, guest: Guest, line: bytes) -> None:
        wish = json.loads(line)
        if "exec" in wish:
            self._execute(guest, wish)
        elif "attach" in wish:
            self._attach(guest)
        elif "eof" in wish:
            self._end_of_stdin(guest)
        else:
            raise ValueError(line[:100])

    def _execute(self, guest: Guest, wish: dict[str, object]) -> None:
        stdin, stdout, stderr = guest.descriptors  # some are missing when no more can be opened: a ValueError
        guest.tty = bool(wish["tty"])
        try:
            guest.pid = self.house.spawn(list(wish["exec"]), (stdin, stdout, stderr), guest.tty)  # type: ignore[call-overload]
        except Refused as refused:
            guest.tell({"error": str(refused)})
        else:
            guest.tell({"pid": guest.pid})
        guest.drop_descriptors()

    def _attach(self, guest: Guest) -> None:
        guest.viewers = dict(zip((b"stdout", b"stderr"), map(Viewer, guest.descriptors), strict=False))
        guest.descriptors = []
        stdin = self.house.stdin()
        guest.has_stdin = stdin >= 0
        guest.tell({"attached": True}, (stdin,) if guest.has_stdin else ())

    def _end_of_stdin(self, guest: Guest) -> None:
        if guest.has_stdin:
            guest.has_stdin = False
            self.house.close_stdin()

    def _take_leave(self, guest: Guest) -> None:
        self.present.pop(guest.connection.fileno(), None)
        self._end_of_stdin(guest)
        guest.close()
        if guest.pid and guest.tty:
            self.house.hang_up(guest.pid)
            self.leaving[guest.pid] = time.monotonic() + HANGUP_SECONDS
        elif guest.pid:
            self.house.end_tree(guest.pid)

    def show(self, stream: bytes, data: bytes) -> None:
        """The container has said something."""
        for guest in self.present.values():
            if stream in guest.viewers:
                guest.viewers[stream].show(data)

    def ended(self, pid: int, code: int) -> None:
        """A process of the container has been reaped: perhaps a guest's command."""
        self.leaving.pop(pid, None)
        for guest in list(self.present.values()):
            if guest.pid == pid:
                guest.pid = 0
                guest.tell({"code": code})
                self.present.pop(guest.connection.fileno())
                guest.close()

    def farewell(self) -> None:
        """The container has ended; what it has said last is still shown."""
        if self.door is not None:
            self.door.close()
            self.door = None
        deadline = time.monotonic() + FAREWELL_SECONDS
        while self.are_behind and (left := deadline - time.monotonic()) > 0:
            poll = select.poll()
            for viewer in self._viewers():
                if viewer.pending:
                    poll.register(viewer.descriptor, select.POLLOUT)
            poll.poll(left * 1000)
            for viewer in self._viewers():
                viewer.go_on()
        for guest in self.present.values():
            guest.close()
        self.present = {}


def _door(folder: str) -> socket.socket | None:
    """A socket's path may have 100 bytes only, so it is named from within the folder. None on a full disk."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.chdir(folder)
        with contextlib.suppress(FileNotFoundError):
            os.remove(SOCKET)
        door.bind(SOCKET)
        door.listen(BACKLOG)
        door.setblocking(False)
    except OSError:
        door.close()
        return None
    else:
        return door
    finally:
        os.fchdir(before)
        os.close(before)
