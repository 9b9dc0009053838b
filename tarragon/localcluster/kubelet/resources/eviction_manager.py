"""Looks now and then at what pods use that have bounds, and at nothing while there are none."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from tarragon.base.clock import Clock
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.pod.status import Verdict
from tarragon.localcluster.kubelet.resources.bounds import EVICTED, Bounds, Used, bounds, eviction, too_much_memory
from tarragon.localcluster.kubelet.resources.sampler import Read, Runs, of_processes

LOOK_SECONDS = 10.0
"""Between two looks, as a kubelet has it; longer where a look takes long."""
_SHARE = 0.02
"""Of the time that may go into looking: a volume may hold a million files."""

Tell = Callable[[Pod, Literal["Normal", "Warning"], str, str], None]


class Watched(Protocol):
    """A pod that is run here."""

    pod: Pod

    def running(self) -> Mapping[str, Path]:
        """The folders of its containers' runs."""
        ...

    def end(self, verdict: Verdict) -> None:
        """Make it go."""
        ...


@dataclass(frozen=True, slots=True)
class _Held:
    worker: Watched
    bounds: Bounds


class Overuse:
    """Told of each pod that begins and ends; `run` does the rest."""

    def __init__(self, folder: NodeFolder, clock: Clock, tell: Tell, read: Read = of_processes) -> None:
        self._folder = folder
        self._clock = clock
        self._tell = tell
        self._read = read
        self._held: dict[str, _Held] = {}
        self._told: set[Path] = set()
        self._some = asyncio.Event()

    def begins(self, worker: Watched) -> None:
        allowed = bounds(worker.pod)
        if allowed:
            self._held[worker.pod.metadata.uid] = _Held(worker, allowed)
            self._some.set()

    def ends(self, worker: Watched) -> None:
        self._held.pop(worker.pod.metadata.uid, None)

    async def run(self) -> None:
        """For ever."""
        pause = LOOK_SECONDS
        while True:
            if not self._held:
                self._some.clear()
                self._told.clear()
            await self._some.wait()
            await self._clock.sleep(pause)
            began = self._clock.monotonic()
            await self.look()
            pause = max(LOOK_SECONDS, (self._clock.monotonic() - began) / _SHARE)

    async def look(self) -> None:
        """Once at every pod that has bounds."""
        held = [(each, dict(each.worker.running())) for each in self._held.values()]
        memory = await self._memory(held)
        for each, runs in held:
            if runs:
                used = await asyncio.to_thread(self._used, each, runs, memory)
                self._judge(each, runs, used)

    async def _memory(self, held: Iterable[tuple[_Held, Runs]]) -> Mapping[str, int]:
        """By the run's folder."""
        runs = {
            str(folder): folder
            for each, runs in held
            for container, folder in runs.items()
            if container in each.bounds.memory
        }
        found = await asyncio.to_thread(self._read, runs) if runs else {}
        return {folder: reading.memory for folder, reading in found.items()}

    def _used(self, held: _Held, runs: Runs, memory: Mapping[str, int]) -> Used:
        used = {name: memory[str(folder)] for name, folder in runs.items() if str(folder) in memory}
        if not (held.bounds.storage or held.bounds.empty_dirs):
            return Used(memory=used)
        metadata = held.worker.pod.metadata
        place = self._folder.pod(metadata.uid)
        logs = self._folder.pod_logs(metadata.namespace, metadata.name, metadata.uid).path
        names = [volume["name"] for volume in held.worker.pod.spec.volumes if _is_counted(volume)]
        return Used(
            memory=used,
            logs={each.name: size(logs / each.name) for each in held.worker.pod.spec.all_containers},
            empty_dirs={name: size(place.volumes / name) for name in names},
            rest=size(place.work),
        )

    def _judge(self, held: _Held, runs: Runs, used: Used) -> None:
        pod = held.worker.pod
        if verdict := eviction(pod, held.bounds, used):
            self._tell(pod, "Warning", EVICTED, verdict.message)
            held.worker.end(verdict)
            return
        for name, words in too_much_memory(held.bounds, used).items():
            if runs[name] not in self._told:
                self._told.add(runs[name])
                self._tell(pod, "Warning", "MemoryLimitExceeded", words)


def _is_counted(volume: Mapping[str, object]) -> bool:
    return volume.get("emptyDir") is not None


def size(folder: Path) -> int:
    """Bytes that the files below it take on the disk; what vanishes meanwhile takes none. Links are not followed."""
    whole = 0
    waiting = [folder]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    whole += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
    return whole
