"""The log file of the background server: its rotation, and its last lines for error messages."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from tarragon.base.clock import Clock

MAX_BYTES_AT_START = 2**20
"""A larger log is rotated when a server starts; the log that was rotated before is deleted."""
MAX_BYTES = 8 * 2**20
"""A larger log is rotated while the server runs."""
CHECK_SECONDS = 60.0

_LAST_LINES = 15
_MAX_TAIL_BYTES = 2**20


def rotate_at_start(log: Path) -> None:
    """Rotate a large log, before a server starts. Raises OSError."""
    if log.exists() and log.stat().st_size > MAX_BYTES_AT_START:
        log.replace(log.with_suffix(".log.1"))


async def rotate_for_ever(log: Path, clock: Clock) -> None:
    """Rotate the log for ever. All writers append, so the file can be truncated while it is open."""
    while True:
        await clock.sleep(CHECK_SECONDS)
        _rotate_large(log)


def _rotate_large(log: Path) -> None:
    with suppress(OSError):
        if log.stat().st_size > MAX_BYTES:
            # On a full disk the copy fails, and the log must be truncated all the more.
            with suppress(OSError):
                _copy(log, log.with_suffix(".log.1"))
            os.truncate(log, 0)


def _copy(log: Path, aside: Path) -> None:
    """Copy with mode 0600. shutil.copyfile would use the mode of the umask."""
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with log.open("rb") as source, os.fdopen(descriptor, "wb") as target:
        shutil.copyfileobj(source, target)


def last_lines(log: Path, since: int) -> str:
    """The last lines that were logged after byte `since`; empty if there are none."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(since, log.stat().st_size - _MAX_TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
        return "\n".join([line for line in lines if line.strip()][-_LAST_LINES:])
    return ""
