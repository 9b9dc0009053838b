"""Runs a program that must not run twice at a time, and writes down that it did.

python alone.py FOLDER NAME PROGRAM...
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path


def claim(folder: Path, name: str) -> None:
    """Hold the name as long as this process lives, or one that it becomes."""
    descriptor = os.open(folder / f"{name}.lock", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(descriptor, True)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note(folder, "twice", name)
    note(folder, "started", name)


def note(folder: Path, file: str, line: str) -> None:
    with (folder / file).open("a") as notes:
        notes.write(f"{line}\n")


if __name__ == "__main__":
    claim(Path(sys.argv[1]), sys.argv[2])
    print(f"{sys.argv[2]} begins", flush=True)
    os.execvp(sys.argv[3], sys.argv[3:])  # noqa: S606 - no shell is wanted
