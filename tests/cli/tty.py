"""A command at a terminal of its own: what it draws, and what somebody types."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte
import pytest


class Tty:
    """The command is its session's leader and has no other terminal; whatever happens, it is gone in the end."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], columns: int = 80, lines: int = 24
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.raw = b""
        self._parser = pyte.ByteStream(self.screen)
        self._main, side = pty.openpty()
        self._size(columns, lines)
        self.process = subprocess.Popen(
            ["/usr/bin/setsid", "--ctty", "--wait", *command],
            cwd=folder,
            env={**environment, "TERM": environment.get("TERM", "xterm-256color")},
            stdin=side,
            stdout=side,
            stderr=side,
        )
        os.close(side)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The terminal goes away, and whoever has it hears SIGHUP.
        os.close(self._main)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def text(self) -> str:
        return "\n".join(row.rstrip() for row in self.screen.display)

    def type(self, keys: str) -> None:
        os.write(self._main, keys.encode())

    def until(self, seen: Callable[[str], bool] | str, seconds: float = 60) -> str:
        """What is on the screen as soon as it is so."""
        claim = seen if callable(seen) else lambda text: seen in text
        deadline = time.monotonic() + seconds
        while not claim(self.text):
            if not self._read(deadline - time.monotonic()) and not claim(self.text):
                pytest.fail(f"never seen; the screen says:\n{self.text}")
        return self.text

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(lines, columns)
        self._size(columns, lines)

    def ended(self) -> int:
        """Its exit code, with all that it has drawn taken in."""
        while self._read(30):
            pass
        return self.process.wait(timeout=60)

    def _size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self, seconds: float) -> bool:
        if seconds <= 0 or not select.select([self._main], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._main, 65536)
        except OSError:  # EIO: nobody has it open any more
            return False
        self.raw += data
        self._parser.feed(data)
        return bool(data)
