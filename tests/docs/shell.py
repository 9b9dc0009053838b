"""A shell in which commands are typed one after another, as a reader of the docs does it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class Result:
    exit_code: int
    output: str
    """Standard output and error as the terminal would show them."""


class Shell:
    """One bash for all commands, so that `cd` and `export` last. On leaving, what still runs in it is ended."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.communicate()

    def run(self, command: str, timeout: float) -> Result:
        """The command must not read its input: nobody types into it."""
        end = f"-- {uuid.uuid4().hex} "
        assert self._bash.stdin
        self._bash.stdin.write(f"{{ {command}\n}} </dev/null; printf '%s%d\\n' '{end}' $?\n".encode())
        self._bash.stdin.flush()
        output, _, code = self._read_until(end, time.monotonic() + timeout).rpartition(end)
        return Result(int(code), output)

    def _read_until(self, end: str, deadline: float) -> str:
        assert self._bash.stdout
        pipe, data = self._bash.stdout.fileno(), b""
        while end.encode() not in data or not data.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(pipe, 65536) if ready else b""
            if not part:
                why = "the shell has ended" if ready else "it did not end in time"
                raise AssertionError(f"{why}; so far it said:\n{data.decode(errors='replace')}")
            data += part
        return data.decode(errors="replace")
