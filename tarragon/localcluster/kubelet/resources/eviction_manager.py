"""Checks the usage of pods that have limits periodically, and evicts those that exceed their storage."""

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
from tarragon.localcluster.kubelet.pod.status import PodFailure
from tarragon.localcluster.kubelet.resources.limits import (
    EVICTED,
    PodLimits,
    UsedResources,
    eviction,
    memory_warnings,
    pod_limits,
)
from tarragon.localcluster.kubelet.resources.sampler import ReadUsage, RunFolders, read_processes

CHECK_SECONDS = 10.0
"""The kubelet's interval between two checks; longer when a check takes long."""
_SHARE = 0.02
"""The share of time that checks may take, as a volume may hold a million files."""

RecordPodEvent = Callable[[Pod, Literal["Normal", "Warning"], str, str], None]


class RunningPod(Protocol):
    """A pod that runs on this node."""

    pod: Pod

    def live_runs(self) -> Mapping[str, Path]:
        """The run folders of its live containers, by name."""
        ...

    def end(self, verdict: PodFailure) -> None:
        """Evict the pod."""
        ...


@dataclass(frozen=True, slots=True)
class _LimitedPod:
    worker: RunningPod
    bounds: PodLimits


class EvictionManager:
    """Checks the pods with limits: `add` adds one, `remove` removes it, `run` does the checks."""

    def __init__(
        self, folder: NodeFolder, clock: Clock, record_event: RecordPodEvent, read: ReadUsage = read_processes
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._record_event = record_event
        self._read = read
        self._pods: dict[str, _LimitedPod] = {}
        self._reported: set[Path] = set()
        self._has_pods = asyncio.Event()

    def add(self, worker: RunningPod) -> None:
        allowed = pod_limits(worker.pod)
        if allowed:
            self._pods[worker.pod.metadata.uid] = _LimitedPod(worker, allowed)
            self._has_pods.set()

    def remove(self, worker: RunningPod) -> None:
        self._pods.pop(worker.pod.metadata.uid, None)

    async def run(self) -> None:
        """Check the pods until cancelled, and sleep while no pod has limits."""
        pause = CHECK_SECONDS
        while True:
            if not self._pods:
                self._has_pods.clear()
                self._reported.clear()
            await self._has_pods.wait()
            await self._clock.sleep(pause)
            began = self._clock.monotonic()
            await self.check()
            pause = max(CHECK_SECONDS, (self._clock.monotonic() - began) / _SHARE)

    async def check(self) -> None:
        """Check every pod with limits once."""
        pods = [(pod, dict(pod.worker.live_runs())) for pod in self._pods.values()]
        memory = await self._memory(pods)
        for pod, runs in pods:
            if runs:
                used = await asyncio.to_thread(self._used, pod, runs, memory)
                self._enforce(pod, runs, used)

    async def _memory(self, pods: Iterable[tuple[_LimitedPod, RunFolders]]) -> Mapping[str, int]:
        """The memory of all containers with a memory limit, by run folder."""
        runs = {
            str(folder): folder
            for pod, runs in pods
            for container, folder in runs.items()
            if container in pod.bounds.memory
        }
        readings = await asyncio.to_thread(self._read, runs) if runs else {}
        return {folder: reading.memory for folder, reading in readings.items()}

    def _used(self, limited: _LimitedPod, runs: RunFolders, memory: Mapping[str, int]) -> UsedResources:
        used = {name: memory[str(folder)] for name, folder in runs.items() if str(folder) in memory}
        if not (limited.bounds.storage or limited.bounds.empty_dirs):
            return UsedResources(memory=used)
        metadata = limited.worker.pod.metadata
        folder = self._folder.pod(metadata.uid)
        logs = self._folder.pod_logs(metadata.namespace, metadata.name, metadata.uid).path
        names = [volume["name"] for volume in limited.worker.pod.spec.volumes if _is_empty_dir(volume)]
        return UsedResources(
            memory=used,
            logs={each.name: disk_usage(logs / each.name) for each in limited.worker.pod.spec.all_containers},
            empty_dirs={name: disk_usage(folder.volumes / name) for name in names},
            rest=disk_usage(folder.work),
        )

    def _enforce(self, limited: _LimitedPod, runs: RunFolders, used: UsedResources) -> None:
        pod = limited.worker.pod
        if verdict := eviction(pod, limited.bounds, used):
            self._record_event(pod, "Warning", EVICTED, verdict.message)
            limited.worker.end(verdict)
            return
        for name, message in memory_warnings(limited.bounds, used).items():
            if runs[name] not in self._reported:
                self._reported.add(runs[name])
                self._record_event(pod, "Warning", "MemoryLimitExceeded", message)


def _is_empty_dir(volume: Mapping[str, object]) -> bool:
    return volume.get("emptyDir") is not None


def disk_usage(folder: Path) -> int:
    """Bytes on disk of the folder's files, without following links; files that vanish meanwhile are skipped."""
    total = 0
    pending = [folder]
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
    return total
