"""Recording of a command in a pseudo-terminal: its output, with the time of each piece."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_READ = 65536


@dataclass(frozen=True, slots=True)
class Size:
    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes that the command wrote to its terminal, and the time since the start in seconds."""

    at: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Recording:
    outputs: tuple[Output, ...]
    exit_code: int


def record(command: Sequence[str], size: Size, timeout: float) -> Recording:
    """Run the command and record its output, which is copied to stderr too."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env=_environment(size)
    )
    os.close(theirs)
    try:
        outputs = tuple(_outputs(ours, time.monotonic(), timeout))
        return Recording(outputs, process.wait(timeout=10))
    finally:
        os.close(ours)
        if process.poll() is None:
            process.kill()
            process.wait()


def _environment(size: Size) -> dict[str, str]:
    # Only the sixteen named colours, which are drawn in the colours of the reader's theme.
    inherited = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLORTERM", "CI"}}
    return {**inherited, "TERM": "xterm-256color", "COLUMNS": str(size.columns), "LINES": str(size.rows)}


def _outputs(terminal: int, start: float, timeout: float) -> Iterator[Output]:
    while True:
        left = start + timeout - time.monotonic()
        if left <= 0 or not select.select([terminal], [], [], left)[0]:
            raise TimeoutError(f"the command did not end within {timeout:g} s")
        try:
            data = os.read(terminal, _READ)
        except OSError:  # Linux: EIO, when the last process has closed its side
            return
        if not data:
            return
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
        yield Output(time.monotonic() - start, data)
