"""Processes of the machine: parents and descendants, start environments, start times.

The shim imports this module outside the package, so it uses only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import sys

LINUX = sys.platform == "linux"


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def process_stat(pid: int) -> tuple[str, int, int] | None:
    """State letter, parent pid, and start time in clock ticks since boot; pid and start time identify a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command name is in parentheses and may itself contain parentheses.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1]), int(fields[19])


def start_time(pid: int) -> int:
    stat = process_stat(pid)
    return stat[2] if stat else 0


def live_parents() -> dict[int, int]:
    """The parent pid of each process, without zombies."""
    if not LINUX:
        return {}
    parents = {}
    for name in os.listdir("/proc"):
        stat = process_stat(int(name)) if name.isdigit() else None
        if stat and stat[0] not in "ZX":
            parents[int(name)] = stat[1]
    return parents


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in live_parents().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    pending = [root]
    while pending:
        direct = children.get(pending.pop(), [])
        found += direct
        pending += direct
    return found


def start_environments() -> list[tuple[int, bytes]]:
    """The start environment of each of our processes: each variable ends with a NUL, and one NUL precedes the first."""
    found = []
    for pid in live_parents():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                found.append((pid, b"\0" + file.read()))
        except OSError:  # ended meanwhile, or another user's
            continue
    return found


def pids_with_mark(mark: bytes) -> list[int]:
    """Pids of processes that were started with this variable in their environment, wherever in the process tree."""
    return [pid for pid, environment in start_environments() if b"\0" + mark in environment and pid != os.getpid()]


def kill(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def kill_group(group: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signum)
