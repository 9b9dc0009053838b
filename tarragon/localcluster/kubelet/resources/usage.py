"""Reads the CPU time and memory of containers: the sum over the process tree below each shim.

A shim adopts the orphans of its container, so the tree below it is the whole container. This module imports psutil, so
it is imported only when needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from tarragon.localcluster.kubelet.base.processes import start_time
from tarragon.localcluster.kubelet.resources.usage_reading import UsageReading
from tarragon.localcluster.kubelet.shim.shim_client import state_of


def read_usage(runs: Mapping[str, Path]) -> dict[str, UsageReading]:
    """Read the usage of each live container, by the keys of `runs`. Blocks: it lists all processes and reads files."""
    children = _children()
    shims = {key: _shim(folder) for key, folder in runs.items()}
    return {
        key: reading for key, shim in shims.items() if shim is not None and (reading := _tree_usage(shim, children))
    }


Children = Mapping[int, list[psutil.Process]]


def _children() -> Children:
    children: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter(["ppid"]):
        children.setdefault(process.info["ppid"], []).append(process)
    return children


def _shim(folder: Path) -> int | None:
    """The pid of the run's live shim, unless another process has reused it."""
    state = state_of(folder)
    if state is None or state.shim is None or state.has_ended or start_time(state.shim.pid) != state.shim.start:
        return None
    return state.shim.pid


def _tree_usage(shim: int, children: Children) -> UsageReading | None:
    """The usage of the tree below a shim: its ended children count for the container, the shim itself does not."""
    try:
        times = psutil.Process(shim).cpu_times()
    except psutil.Error:
        return None
    cpu, memory = times.children_user + times.children_system, 0
    for process in _descendants(shim, children):
        with contextlib.suppress(psutil.Error):  # ended meanwhile
            cpu += sum(process.cpu_times()[:4])
            memory += _memory(process)
    return UsageReading(cpu=cpu, memory=memory)


def _descendants(root: int, children: Children) -> Iterator[psutil.Process]:
    pending = list(children.get(root, ()))
    while pending:
        process = pending.pop()
        yield process
        pending += children.get(process.pid, ())


def _memory(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.AccessDenied, AttributeError):
        return int(process.memory_full_info().pss)
    return int(process.memory_info().rss)
