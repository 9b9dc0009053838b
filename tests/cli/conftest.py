from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has run to its end, as the shell saw it."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Somebody at a prompt, in a folder of their own, with an embedded cluster of their own."""

    folder: Path
    home: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TARRAGON_")}
        return {**kept, "TARRAGON_HOME": str(self.home), **self.variables}

    def command(self, *words: str) -> Sequence[str]:
        return [sys.executable, "-P", "-m", "tarragon", *words]

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words),
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str, stdin: str = "") -> Ended:
        ended = subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=self.environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Whatever the test has started is ended after it."""
    folder, home = tmp_path / "work", tmp_path / "home"
    folder.mkdir()
    made = Shell(folder=folder, home=home)
    yield made
    if home.exists():
        made("down")
