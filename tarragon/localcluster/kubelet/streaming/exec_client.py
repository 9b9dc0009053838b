"""Runs commands in a running container (exec), and connects to its main process (attach).

    ended = await exec_client.run(run_folder, ["cat", "/data/x"], seconds=5)      # ended.code, ended.output
    async with await exec_client.start(run_folder, Command(argv=argv, has_stdin=True)) as command:
        await command.stdin.write(b"..."); await command.stdout.read(); await command.code()
    async with await exec_client.attach(run_folder) as container:
        ...

The folder is the run folder (`PodFolder.run(container, number)`); no kubelet needs to run. A command has the
container's environment, working folder and paths, and is a child of its shim. It ends with the container, and with its
connection to the shim, which the client closes or which breaks when the client dies. See exec_server.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

import msgspec

from tarragon.base.errors import TarragonError
from tarragon.localcluster.kubelet.base.descriptors import PipeReader, PipeWriter, wait_readable
from tarragon.localcluster.kubelet.base.files import read_json
from tarragon.localcluster.kubelet.base.processes import LINUX
from tarragon.localcluster.kubelet.network.address_translation import localize_paths
from tarragon.localcluster.kubelet.shim import exec_server

KILLED_EXIT_CODE = 137
"""The exit code of a command whose container has ended."""
OUTPUT_BYTES = 10 * 1024
"""The limit of the output of `run`: as much as the kubelet keeps of a probe's output."""
MAX_FOLDER_BYTES = 90
"""The longest folder, in bytes, in the address of a socket, which is limited to 108 on Linux and 104 on macOS."""
_REMEDY = "containers started by an earlier version of Tarragon do not support exec and attach; restart the pod"
_SPECIAL_IN_PATTERNS = re.compile(r"[][\\.*^$|]")


class CannotConnect(TarragonError):
    """The container does not run, or its shim does not reply."""


class CannotExecute(Exception):
    """The command could not be started in the running container; the message is worded like a container runtime's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecCommand:
    """A command with paths of the container. On a terminal (`tty`), stdout and stderr are one stream."""

    argv: Sequence[str]
    has_stdin: bool = False
    tty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """The exit code and the first OUTPUT_BYTES of stdout and stderr."""

    code: int
    output: bytes


class _Reply(msgspec.Struct, frozen=True):
    pid: int = 0
    error: str = ""
    code: int | None = None


class _Spec(msgspec.Struct, frozen=True):
    places: dict[str, str] = {}
    tty: bool = False


class ContainerProcess:
    """A command in a container, or the attached main process. Leaving the `async with` ends a command.

    `stdin` is None when there is none; on a terminal, it also sets the window size. Pending reads and writes must be
    cancelled before the `async with` is left.
    """

    def __init__(self, connection: _Connection, outputs: Sequence[int], stdin: int, *, is_command: bool) -> None:
        self._connection = connection
        self._is_command = is_command
        self._ended = asyncio.Event()
        self.stdin = PipeWriter(stdin) if stdin >= 0 else None
        self.stdout = PipeReader(outputs[0], self._ended)
        self.stderr = PipeReader(outputs[1], self._ended) if len(outputs) > 1 else None
        self._exit = asyncio.ensure_future(self._wait_for_exit())

    async def _wait_for_exit(self) -> int:
        """Wait for the exit code. An attached main process reports none; its outputs end instead."""
        try:
            while line := await self._connection.receive():
                reply = msgspec.json.decode(line, type=_Reply)
                if reply.code is not None:
                    return reply.code
            return KILLED_EXIT_CODE
        finally:
            if self._is_command:
                self._ended.set()

    async def exit_code(self) -> int:
        """Wait for the command's exit code, 128+n after signal n. Output may still be left to read."""
        return await asyncio.shield(self._exit)

    async def close_stdin(self) -> None:
        """Close the stdin of a command or main process without a terminal."""
        if self.stdin is not None and not self.is_terminal:
            self.stdin.close()
            with contextlib.suppress(CannotConnect):
                await self._connection.send({"eof": True})

    @property
    def is_terminal(self) -> bool:
        return self.stderr is None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._exit.cancel()
            await asyncio.gather(self._exit, return_exceptions=True)
        finally:
            self._connection.close()
            for stream in (self.stdin, self.stdout, self.stderr):
                if stream is not None:
                    stream.close()


async def start(run: Path, command: ExecCommand) -> ContainerProcess:
    """Start a command in a container. Raises CannotConnect, CannotExecute."""
    argv = localize_command(run, command.argv)
    with _terminal() if command.tty else _pipes(command) as streams:
        connection = await _Connection.open(run)
        try:
            await connection.send({"exec": argv, "tty": command.tty}, streams.theirs)
            await connection.receive_reply()
        except BaseException:
            connection.close()
            raise
        stdin, *outputs = streams.take()
    return ContainerProcess(connection, outputs, stdin, is_command=True)


async def attach(run: Path) -> ContainerProcess:
    """Attach to the container's main process: its output from now on, and its stdin. Raises CannotConnect."""
    is_terminal = bool((spec := read_json(run / "spec.json", _Spec)) and spec.tty)
    with _outputs(1 if is_terminal else 2) as streams:
        connection = await _Connection.open(run)
        try:
            await connection.send({"attach": True}, streams.theirs)
            await connection.receive_reply()
        except BaseException:
            connection.close()
            raise
        outputs = streams.take()
    stdin = connection.descriptors.pop() if connection.descriptors else -1
    return ContainerProcess(connection, outputs, stdin, is_command=False)


async def run(folder: Path, argv: Sequence[str], *, seconds: float) -> ExecResult:
    """Run a command to its end. Raises CannotConnect, CannotExecute, or TimeoutError after ending the command."""
    async with asyncio.timeout(seconds), await start(folder, ExecCommand(argv=argv)) as command:
        collected = bytearray()
        await asyncio.gather(*(_collect(each, collected) for each in (command.stdout, command.stderr) if each))
        return ExecResult(code=await command.exit_code(), output=bytes(collected))


async def _collect(output: PipeReader, collected: bytearray) -> None:
    while data := await output.read():
        collected += data[: OUTPUT_BYTES - len(collected)]


def localize_command(run: Path, words: Sequence[str]) -> list[str]:
    """The words of a command with the container's paths replaced by local ones, as in the container's own command."""
    spec = read_json(run / "spec.json", _Spec) or _Spec()
    places = {path: Path(place) for path, place in spec.places.items()}
    return _keep_member_names(words, [localize_paths(word, places) for word in words], places)


@dataclass(frozen=True, slots=True)
class _StreamPairs:
    """Both ends of a command's pipes or terminal, in the order stdin, stdout, stderr; -1 for no end on our side."""

    ours: list[int]
    theirs: list[int]

    def take(self) -> list[int]:
        """Our ends, which the caller must close from now on."""
        ours = list(self.ours)
        self.ours.clear()
        return ours

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in {*self.ours, *self.theirs} - {-1}:
            os.close(descriptor)


def _outputs(count: int) -> _StreamPairs:
    pipes = [os.pipe() for _ in range(count)]
    return _StreamPairs([ours for ours, _ in pipes], [theirs for _, theirs in pipes])


def _pipes(command: ExecCommand) -> _StreamPairs:
    theirs, ours = os.pipe() if command.has_stdin else (os.open(os.devnull, os.O_RDONLY), -1)
    outputs = _outputs(2)
    return _StreamPairs([ours, *outputs.ours], [theirs, *outputs.theirs])


def _terminal() -> _StreamPairs:
    """A terminal's ends; stdin is needed even if the command has none, to set the window size."""
    ours, theirs = os.openpty()
    return _StreamPairs([os.dup(ours), ours], [theirs, theirs, theirs])


class _Connection:
    """A connection to the shim. `descriptors` are those that it sent."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._received = b""
        self.descriptors: list[int] = []

    @classmethod
    async def open(cls, run: Path) -> _Connection:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            with short_path(run) as folder:
                connection.connect(str(folder / exec_server.SOCKET))
        except OSError as error:
            connection.close()
            cause = f"{error.strerror or error}"
            raise CannotConnect(
                "cannot connect to the container: it does not run, or does not respond", why=cause, remedy=_REMEDY
            ) from error
        return cls(connection)

    async def send(self, request: dict[str, object], descriptors: Sequence[int] = ()) -> None:
        """Send a request with descriptors. Raises CannotConnect."""
        data = msgspec.json.encode(request) + b"\n"
        try:
            sent = socket.send_fds(self._socket, [data], descriptors) if descriptors else 0
            if rest := data[sent:]:  # sending nothing would still fail after the shim has replied and closed
                await asyncio.get_running_loop().sock_sendall(self._socket, rest)
        except OSError as error:
            raise CannotConnect("the container has just ended") from error

    async def receive_reply(self) -> None:
        """Wait for the reply to a request. Raises CannotConnect, CannotExecute."""
        line = await self.receive()
        if not line:
            raise CannotConnect("the container has just ended")
        if error := msgspec.json.decode(line, type=_Reply).error:
            raise CannotExecute(error)

    async def receive(self) -> bytes:
        """Receive a line; empty when the shim has closed the connection."""
        while b"\n" not in self._received:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, 4096, exec_server.MAX_DESCRIPTORS)
            except BlockingIOError:
                await wait_readable(self._socket.fileno())
                continue
            except OSError:
                return b""
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            self.descriptors += descriptors
            if not data:
                return b""
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def close(self) -> None:
        self._socket.close()
        while self.descriptors:
            os.close(self.descriptors.pop())


@contextlib.contextmanager
def short_path(folder: Path) -> Iterator[Path]:
    """A path to the folder that is short enough for the address of a socket."""
    if len(os.fsencode(folder)) < MAX_FOLDER_BYTES:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="tarragon-") as temporary:
        link = Path(temporary, "f")
        link.symlink_to(folder)
        yield link


def _keep_member_names(original: Sequence[str], translated: Sequence[str], places: Mapping[str, Path]) -> list[str]:
    """The translated words of a command; a tar of translated paths gets options that rename its members.

    kubectl rejects an archive without the path that it asked for.
    """
    if PurePosixPath(original[0] if original else "").name != "tar" or list(original) == list(translated):
        return list(translated)
    used = {path: place for path, place in places.items() if any(path in word for word in original[1:])}
    options = [option for path, place in used.items() for option in _rename_options(path, place)]
    return [translated[0], *translated[1:], *options]


def _rename_options(path: str, place: Path) -> list[str]:
    """Options of GNU tar, or of BSD tar on macOS. Targets of symbolic links are not renamed."""
    local, original = _SPECIAL_IN_PATTERNS.sub(r"\\\g<0>", str(place).strip("/")), path.strip("/").replace("&", r"\&")
    if LINUX:
        return [f"--transform=flags=rhS;s|^/*{local}|{original}|"]
    return ["-s", f"|^/*{local}|{original}|RhS"]
