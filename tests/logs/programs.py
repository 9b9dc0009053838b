"""Runs the log scripts as in the container of a replica, with any Python on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tarragon.plan.objects.logs import scripts

FIELDS: Mapping[str, Any] = {
    "job": "dist",
    "namespace": "n1",
    "pod": "dist-ps-0",
    "replica_type": "ps",
    "replica_index": 0,
    "runtime_id": "a1b2",
    "uid": "u-1",
}
VERSIONS = ("2.7", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
LABELS = "logging.googleapis.com/labels"
SOURCE = "logging.googleapis.com/sourceLocation"
PATIENCE = 60


@cache
def pythons() -> Mapping[str, str]:
    """The Python programs on this machine by version, including the current one."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    for version in VERSIONS:
        kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        program = str(kept[0]) if kept else shutil.which(f"python{version}")
        if program and _works(program):
            found.setdefault(version, program)
    return found


def _works(program: str) -> bool:
    """Whether a program runs: pyenv has shims for versions that are not active."""
    return subprocess.run([program, "-c", ""], capture_output=True, check=False, timeout=PATIENCE).returncode == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The result of a command."""

    code: int
    out: bytes
    err: bytes

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The decoded lines of stdout and stderr. Fails if a line is not JSON."""
        return [json.loads(line) for line in (*self.out.splitlines(), *self.err.splitlines())]

    @property
    def messages(self) -> list[str]:
        return [line["message"] for line in self.lines]


class Container:
    """A simulated container: the folder with the mounted scripts, and the environment of the pod."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.scripts = folder / "scripts"
        self.scripts.mkdir()
        for name, text in scripts().items():
            (self.scripts / name).write_text(text)
        self.ending = folder / "termination"
        self.python = python
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TARRAGON"))},
            "TARRAGON_LOG_FIELDS": json.dumps(dict(FIELDS)),
            "TARRAGON_LOG_ENDING": str(self.ending),
        }

    def command(self, *words: str) -> Sequence[str]:
        return [self.python, "-E", "-S", str(self.scripts / "json_logs.py"), *words]

    def start(self, *words: str, **how: Any) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self.command(*words), **{"stdout": pipe, "stderr": pipe, "env": self.env, "bufsize": 0, **how}
        )

    def run(self, *words: str, stdin: bytes = b"", **env: str) -> CommandResult:
        """Run a command to its end. `stdin` is its standard input."""
        return ended(self.start(*words, stdin=subprocess.PIPE, env={**self.env, **env}), stdin)

    def run_python(self, program: str, *words: str) -> CommandResult:
        return self.run(self.python, *words, "-c", program)


def ended(process: subprocess.Popen[bytes], stdin: bytes = b"") -> CommandResult:
    out, err = process.communicate(stdin or None, timeout=PATIENCE)
    return CommandResult(code=process.returncode, out=out, err=err)
