"""What containers use, as processes of this machine: processor time and memory, summed over the tree under each shim.

A shim adopts whatever its container leaves behind, so the tree below it is the container, whole. Nothing is measured
until somebody asks. Imports psutil, so import this late.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from tarragon.localcluster.kubelet.base.processes import start_time
from tarragon.localcluster.kubelet.resources.sampler import Reading
from tarragon.localcluster.kubelet.shim.shim_client import state_of


def readings(runs: Mapping[str, Path]) -> dict[str, Reading]:
    """Of each container that lives, by the key that its run's folder has here. Looks at every process of the machine,
    once, and at files: blocks.
    """
    children = _children()
    shims = {key: _shim(folder) for key, folder in runs.items()}
    return {key: found for key, shim in shims.items() if shim is not None and (found := _below(shim, children))}


Children = Mapping[int, list[psutil.Process]]


def _children() -> Children:
    found: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter(["ppid"]):
        found.setdefault(process.info["ppid"], []).append(process)
    return found


def _shim(folder: Path) -> int | None:
    """Its pid, unless that is another process's by now."""
    state = state_of(folder)
    if state is None or state.shim is None or state.has_ended or start_time(state.shim.pid) != state.shim.start:
        return None
    return state.shim.pid


def _below(shim: int, children: Children) -> Reading | None:
    """What the shim itself uses is ours; what its ended children have used is the container's."""
    try:
        times = psutil.Process(shim).cpu_times()
    except psutil.Error:
        return None
    cpu, memory = times.children_user + times.children_system, 0
    for process in _descendants(shim, children):
        with contextlib.suppress(psutil.Error):  # ended meanwhile
            cpu += sum(process.cpu_times()[:4])
            memory += _memory(process)
    return Reading(cpu=cpu, memory=memory)


def _descendants(root: int, children: Children) -> Iterator[psutil.Process]:
    waiting = list(children.get(root, ()))
    while waiting:
        process = waiting.pop()
        yield process
        waiting += children.get(process.pid, ())


def _memory(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.AccessDenied, AttributeError):
        return int(process.memory_full_info().pss)
    return int(process.memory_info().rss)
