"""Measures the current CPU and memory usage of containers from two readings, some time apart.

There is no sampling in the background, so an idle cluster costs nothing. A sample is the mean since the previous
request, if that is recent; otherwise the mean of a half second that the request waits.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tarragon.base.clock import Clock
from tarragon.localcluster.kubelet.resources.usage_reading import UsageReading

SHORTEST_WINDOW, LONGEST_WINDOW = 5.0, 60.0
FIRST_WINDOW_SECONDS = 0.5

RunFolders = Mapping[str, Path]
"""The run folders of containers, by any key."""


ReadUsage = Callable[[RunFolders], Mapping[str, UsageReading]]
"""Reads the usage of live containers. It may block."""


def read_processes(runs: RunFolders) -> Mapping[str, UsageReading]:
    from tarragon.localcluster.kubelet.resources.usage import read_usage  # noqa: PLC0415 - psutil; most clusters never need it

    return read_usage(runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerUsage:
    """Usage of one container: `cpu` in processors, the mean of `window` seconds; `memory` in bytes."""

    cpu: float
    memory: int
    window: float


@dataclass(frozen=True, slots=True)
class UsageSample:
    """The usage of containers at `time`, by key."""

    time: dt.datetime
    usage: Mapping[str, ContainerUsage] = field(default_factory=dict)


class UsageSampler:
    """Measures the containers that `runs` returns at the time of a sample."""

    def __init__(self, runs: Callable[[], RunFolders], clock: Clock, read: ReadUsage = read_processes) -> None:
        self._runs = runs
        self._read = read
        self._clock = clock
        self._before: dict[str, tuple[float, UsageReading]] = {}
        self._lock = asyncio.Lock()

    async def sample(self) -> UsageSample:
        """Measure now. Concurrent calls wait for each other, and use the reading of the one before."""
        async with self._lock:
            if self._is_stale():
                self._before = await self._read_all()
                await self._clock.sleep(FIRST_WINDOW_SECONDS)
            now = await self._read_all()
            usage = {
                key: used
                for key, (time, reading) in now.items()
                if (used := _between(self._before.get(key), time, reading)) is not None
            }
            self._remember(now)
            return UsageSample(self._clock.now(), usage)

    def _is_stale(self) -> bool:
        """Whether a container started since the last reading, or that reading is too old for a current mean."""
        oldest = self._clock.monotonic() - LONGEST_WINDOW
        return any(key not in self._before or self._before[key][0] < oldest for key in self._runs())

    async def _read_all(self) -> dict[str, tuple[float, UsageReading]]:
        readings = await asyncio.to_thread(self._read, dict(self._runs()))
        now = self._clock.monotonic()
        return {key: (now, reading) for key, reading in readings.items()}

    def _remember(self, now: Mapping[str, tuple[float, UsageReading]]) -> None:
        """Replace the previous readings, but keep recent ones: the mean of a very short window is noisy."""
        previous = {key: self._before[key] for key in now if key in self._before}
        recent = {key: reading for key, reading in previous.items() if now[key][0] - reading[0] < SHORTEST_WINDOW}
        self._before = {**now, **recent}


def _between(before: tuple[float, UsageReading] | None, time: float, now: UsageReading) -> ContainerUsage | None:
    if before is None or time <= before[0]:
        return None
    window = time - before[0]
    # Never negative: the CPU time of a process that its parent did not reap is lost.
    cpu = max(0.0, now.cpu - before[1].cpu) / window
    return ContainerUsage(cpu=cpu, memory=now.memory, window=window)
