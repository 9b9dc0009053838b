from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

from tests.cli import forkserver


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A command that has run to its end, as the shell saw it."""

    code: int
    out: str
    err: str


class RunningCommand:
    """A command that still runs. Its stderr goes to a file: nobody has to read it for the command to go on."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as we do
        reading, writing = os.pipe()
        self._out = os.fdopen(reading, encoding="utf-8")
        with os.fdopen(writing, "wb") as out, Path(os.devnull).open("rb") as nothing:
            self._process = forkserver.start(command, folder, environment, [nothing, out, self._errors])
        self._output = ""

    @property
    def err(self) -> str:
        # Not read(): the command writes where this file stands, and both stand at the same place.
        return os.pread(self._errors.fileno(), 2**20, 0).decode()

    def until(self, word: str) -> None:
        """Return when it has said so on stdout."""
        for line in self._out:
            self._output += line
            if word in line:
                return
        pytest.fail(f"it ended without saying {word!r}: {self._output}{self.err}")

    def until_err(self, seen: Callable[[str], bool] | str) -> None:
        """Return when its stderr is so. There are pauses: whoever is waited for needs the processor."""
        claim = seen if callable(seen) else lambda text: seen in text
        goes_on = True
        while not claim(self.err):
            assert goes_on, self.err
            goes_on = self.is_going
            time.sleep(0.02)  # noqa: TID251 - a file tells nobody that there is more in it

    @property
    def is_going(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop_reading(self) -> None:
        self._out.close()

    def ended(self) -> CommandResult:
        rest = "" if self._out.closed else self._out.read()
        code = self._process.wait(timeout=60)
        self._out.close()
        ended = CommandResult(code, self._output + rest, self.err)
        self._errors.close()
        return ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Somebody at a prompt, in a folder of their own, with an embedded cluster of their own."""

    folder: Path
    home: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TARRAGON_")}
        own = {"TARRAGON_HOME": str(self.home), "XDG_CONFIG_HOME": str(self.folder / ".config")}
        return {**kept, **own, **self.variables}

    def command(self, *words: str) -> Sequence[str]:
        return [sys.executable, "-P", "-m", "tarragon", *words]

    def start(self, *words: str) -> RunningCommand:
        return RunningCommand(self.command(*words), self.folder, self.environment())

    def __call__(self, *words: str, stdin: str = "") -> CommandResult:
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin.encode())
            given.seek(0)
            process = forkserver.start(self.command(*words), self.folder, self.environment(), [given, out, err])
            code = process.wait(timeout=100)
            return CommandResult(code, _text(out), _text(err))

    def file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name


def _text(file: IO[bytes]) -> str:
    """All that was written into it, its line ends as a pipe in text mode reads them."""
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n").replace("\r", "\n")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Whatever the test has started is ended after it."""
    folder, home = tmp_path / "work", tmp_path / "home"
    folder.mkdir()
    made = Shell(folder=folder, home=home)
    yield made
    if home.exists():
        made("down")
