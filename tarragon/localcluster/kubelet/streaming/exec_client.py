"""Commands inside a running container, and its own process as it is seen and spoken to from outside.

    ended = await inside.run(run_folder, ["cat", "/data/x"], seconds=5)           # ended.code, ended.output
    async with await inside.start(run_folder, Command(argv, has_stdin=True)) as command:
        await command.stdin.write(b"..."); await command.stdout.read(); await command.code()
    async with await inside.attach(run_folder) as container:
        ...

The folder is that of the run (`PodFolder.run(container, number)`); no kubelet need have started it. A command has the
container's environment, working folder and paths, is a child of its shim, and ends with the container, or when whoever
wanted it closes it or dies: its connection to the shim is its life. See exec_server.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tarragon.base.errors import TarragonError
from tarragon.localcluster.kubelet.base.descriptors import Input, Output, readable
from tarragon.localcluster.kubelet.base.files import read_json
from tarragon.localcluster.kubelet.network.translate import with_local_paths
from tarragon.localcluster.kubelet.shim import exec_server
from tarragon.localcluster.kubelet.streaming.tar import with_names_of_the_container

KILLED = 137
"""What a command ends with whose container has ended."""
OUTPUT_BYTES = 10 * 1024
"""Of the output of `run`: as much as a kubelet keeps of a probe's."""
LONGEST_FOLDER = 90
"""Bytes: the address of a socket has 108 of them on Linux, 104 on macOS."""
_REMEDY = "a container that an earlier version of Tarragon has started lets nobody in; restart its pod"


class CannotEnter(TarragonError):
    """The container does not run, or its shim does not answer."""


class CannotExecute(Exception):
    """The container runs, but the command could not be started in it; in the words of a container runtime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Words as a user writes them: paths are those of the container. On a terminal, stdout and stderr are one."""

    argv: Sequence[str]
    has_stdin: bool = False
    tty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """`output` is stdout and stderr, the first OUTPUT_BYTES of them."""

    code: int
    output: bytes


class _Answer(msgspec.Struct, frozen=True):
    pid: int = 0
    error: str = ""
    code: int | None = None


class _Spec(msgspec.Struct, frozen=True):
    places: dict[str, str] = {}
    tty: bool = False


class Inside:
    """A command in a container, or, if attached, the container's own process. Leaving the `async with` ends a command.

    `stdin` is None where there is none; on a terminal, it is also who is told of the window's size. Whoever still reads
    or writes must have been cancelled before the `async with` is left.
    """

    def __init__(self, line: _Line, outputs: Sequence[int], stdin: int, *, is_command: bool) -> None:
        self._line = line
        self._is_command = is_command
        self._ended = asyncio.Event()
        self.stdin = Input(stdin) if stdin >= 0 else None
        self.stdout = Output(outputs[0], self._ended)
        self.stderr = Output(outputs[1], self._ended) if len(outputs) > 1 else None
        self._ending = asyncio.ensure_future(self._end())

    async def _end(self) -> int:
        """The exit code. What is attached tells none: its outputs end."""
        try:
            while line := await self._line.hear():
                answer = msgspec.json.decode(line, type=_Answer)
                if answer.code is not None:
                    return answer.code
            return KILLED
        finally:
            if self._is_command:
                self._ended.set()

    async def code(self) -> int:
        """As soon as the command has ended; 128+n for a death by signal. Its last words may still wait to be read."""
        return await asyncio.shield(self._ending)

    async def end_stdin(self) -> None:
        """There is nothing more to tell."""
        if self.stdin is not None and not self.is_terminal:
            self.stdin.close()
            with contextlib.suppress(CannotEnter):
                await self._line.say({"eof": True})

    @property
    def is_terminal(self) -> bool:
        return self.stderr is None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._ending.cancel()
            await asyncio.gather(self._ending, return_exceptions=True)
        finally:
            self._line.close()
            for end in (self.stdin, self.stdout, self.stderr):
                if end is not None:
                    end.close()


async def start(run: Path, command: Command) -> Inside:
    """Raises CannotEnter, CannotExecute."""
    argv = translated(run, command.argv)
    with _terminal() if command.tty else _pipes(command) as ends:
        line = await _Line.to(run)
        try:
            await line.say({"exec": argv, "tty": command.tty}, ends.theirs)
            await line.answer()
        except BaseException:
            line.close()
            raise
        stdin, *outputs = ends.taken()
    return Inside(line, outputs, stdin, is_command=True)


async def attach(run: Path) -> Inside:
    """The container's own process: what it says from now on. Raises CannotEnter."""
    is_terminal = bool((spec := read_json(run / "spec.json", _Spec)) and spec.tty)
    with _outputs(1 if is_terminal else 2) as ends:
        line = await _Line.to(run)
        try:
            await line.say({"attach": True}, ends.theirs)
            await line.answer()
        except BaseException:
            line.close()
            raise
        outputs = ends.taken()
    return Inside(line, outputs, line.taken.pop() if line.taken else -1, is_command=False)


async def run(folder: Path, argv: Sequence[str], *, seconds: float) -> Ended:
    """Wait for a command. Raises CannotEnter, CannotExecute, and TimeoutError after having ended it."""
    async with asyncio.timeout(seconds), await start(folder, Command(argv=argv)) as command:
        said = bytearray()
        await asyncio.gather(*(_gather(each, said) for each in (command.stdout, command.stderr) if each))
        return Ended(code=await command.code(), output=bytes(said))


async def _gather(output: Output, said: bytearray) -> None:
    while data := await output.read():
        said += data[: OUTPUT_BYTES - len(said)]


def translated(run: Path, words: Sequence[str]) -> list[str]:
    """With the places of the container's paths on this machine, as its own command had them."""
    spec = read_json(run / "spec.json", _Spec) or _Spec()
    places = {path: Path(place) for path, place in spec.places.items()}
    return with_names_of_the_container(words, [with_local_paths(word, places) for word in words], places)


@dataclass(frozen=True, slots=True)
class _Ends:
    """Of pipes and terminals: a command's streams in their order, and what is at our side of them (-1 is nothing)."""

    ours: list[int]
    theirs: list[int]

    def taken(self) -> list[int]:
        """From now on somebody else closes ours."""
        taken = list(self.ours)
        self.ours.clear()
        return taken

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in {*self.ours, *self.theirs} - {-1}:
            os.close(descriptor)


def _outputs(count: int) -> _Ends:
    pipes = [os.pipe() for _ in range(count)]
    return _Ends([ours for ours, _ in pipes], [theirs for _, theirs in pipes])


def _pipes(command: Command) -> _Ends:
    theirs, ours = os.pipe() if command.has_stdin else (os.open(os.devnull, os.O_RDONLY), -1)
    said = _outputs(2)
    return _Ends([ours, *said.ours], [theirs, *said.theirs])


def _terminal() -> _Ends:
    """Without stdin, too, it must be told of the window's size."""
    ours, theirs = os.openpty()
    return _Ends([os.dup(ours), ours], [theirs, theirs, theirs])


class _Line:
    """The connection to the shim. `taken` are descriptors that came over it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._heard = b""
        self.taken: list[int] = []

    @classmethod
    async def to(cls, run: Path) -> _Line:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            with short_way(run) as place:
                connection.connect(str(place / exec_server.SOCKET))
        except OSError as error:
            connection.close()
            why = f"{error.strerror or error}"
            raise CannotEnter(
                "the container cannot be entered: it does not run, or answers nobody", why=why, remedy=_REMEDY
            ) from error
        return cls(connection)

    async def say(self, wish: dict[str, object], descriptors: Sequence[int] = ()) -> None:
        """Raises CannotEnter."""
        data = msgspec.json.encode(wish) + b"\n"
        try:
            sent = socket.send_fds(self._connection, [data], descriptors) if descriptors else 0
            if rest := data[sent:]:  # even nothing cannot be sent to a shim that has answered already, and hung up
                await asyncio.get_running_loop().sock_sendall(self._connection, rest)
        except OSError as error:
            raise CannotEnter("the container has just ended") from error

    async def answer(self) -> None:
        """Raises CannotEnter, CannotExecute."""
        line = await self.hear()
        if not line:
            raise CannotEnter("the container has just ended")
        if error := msgspec.json.decode(line, type=_Answer).error:
            raise CannotExecute(error)

    async def hear(self) -> bytes:
        """A line; empty when the shim is gone."""
        while b"\n" not in self._heard:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._connection, 4096, exec_server.MOST_DESCRIPTORS)
            except BlockingIOError:
                await readable(self._connection.fileno())
                continue
            except OSError:
                return b""
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            self.taken += descriptors
            if not data:
                return b""
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def close(self) -> None:
        self._connection.close()
        while self.taken:
            os.close(self.taken.pop())


@contextlib.contextmanager
def short_way(folder: Path) -> Iterator[Path]:
    """A path to the folder that fits into the address of a socket."""
    if len(os.fsencode(folder)) < LONGEST_FOLDER:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="tarragon-") as beside:
        link = Path(beside, "f")
        link.symlink_to(folder)
        yield link
