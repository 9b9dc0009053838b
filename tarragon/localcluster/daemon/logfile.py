"""The background server's log: one file that stays small, and what its end says."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from tarragon.base.clock import Clock

START_BYTES = 2**20
"""Above this size the log is put aside when a server starts; the one before it is dropped."""
MOST_BYTES = 8 * 2**20
"""And above this one while it runs."""
LOOK_SECONDS = 60.0

_LINES = 15
_MESSAGE_BYTES = 2**20


def put_aside(log: Path) -> None:
    """Before a server starts. Raises OSError."""
    if log.exists() and log.stat().st_size > START_BYTES:
        log.replace(log.with_suffix(".log.1"))


async def keep_small(log: Path, clock: Clock) -> None:
    """For ever. All who write to it append, so it can be emptied under their hands."""
    while True:
        await clock.sleep(LOOK_SECONDS)
        _empty_large(log)


def _empty_large(log: Path) -> None:
    with suppress(OSError):
        if log.stat().st_size > MOST_BYTES:
            # A disk without room for the copy has all the more reason to lose the original.
            with suppress(OSError):
                _copy(log, log.with_suffix(".log.1"))
            os.truncate(log, 0)


def _copy(log: Path, aside: Path) -> None:
    """As private as the log. shutil.copyfile would make it with the mode of the umask."""
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with log.open("rb") as source, os.fdopen(descriptor, "wb") as target:
        shutil.copyfileobj(source, target)


def last_lines(log: Path, since: int) -> str:
    """The end of what has been logged from byte `since` on; empty when there is nothing."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(since, log.stat().st_size - _MESSAGE_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
        return "\n".join([line for line in lines if line.strip()][-_LINES:])
    return ""
