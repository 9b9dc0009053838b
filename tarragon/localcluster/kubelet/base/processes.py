"""The machine's processes: who descends from whom, who was started with which environment, who is still the same.

A part of the shim, of a file of its own: the standard library only.
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


def stat_of(pid: int) -> tuple[str, int, int] | None:
    """State letter, parent, and start time in clock ticks since boot, which no other process of this pid can share."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command's name stands in parentheses and may hold anything, even parentheses.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1]), int(fields[19])


def start_time(pid: int) -> int:
    stat = stat_of(pid)
    return stat[2] if stat else 0


def living() -> dict[int, int]:
    """Parent of each process that is not dead yet."""
    if not LINUX:
        return {}
    parents = {}
    for name in os.listdir("/proc"):
        stat = stat_of(int(name)) if name.isdigit() else None
        if stat and stat[0] not in "ZX":
            parents[int(name)] = stat[1]
    return parents


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in living().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        offspring = children.get(waiting.pop(), [])
        found += offspring
        waiting += offspring
    return found


def environments() -> list[tuple[int, bytes]]:
    """With what each process of ours was started: each variable ends with a NUL, and one stands before the first."""
    found = []
    for pid in living():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                found.append((pid, b"\0" + file.read()))
        except OSError:  # gone meanwhile, or another user's
            continue
    return found


def marked(mark: bytes) -> list[int]:
    """Processes that were started with this text in their environment, wherever in the tree they have gone."""
    return [pid for pid, environment in environments() if b"\0" + mark in environment and pid != os.getpid()]


def kill(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def kill_group(group: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signum)
