"""How much of the machine containers use at present: two readings, some time apart.

Nobody samples in the background: an idle cluster costs nothing. Whoever asks gets the mean since the last time that
somebody asked, if that is not long ago; else of the half second that it takes to find out.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tarragon.base.clock import Clock

SHORTEST_WINDOW, LONGEST_WINDOW = 5.0, 60.0
FIRST_LOOK_SECONDS = 0.5

Runs = Mapping[str, Path]
"""The folder of each container's run, by any key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`cpu` in seconds since the container began, `memory` in bytes: pages that several processes share count once
    where the system tells (Linux), each time elsewhere.
    """

    cpu: float
    memory: int


Read = Callable[[Runs], Mapping[str, Reading]]
"""Of the containers that live. It may block."""


def of_processes(runs: Runs) -> Mapping[str, Reading]:
    from tarragon.localcluster.kubelet.resources.usage import readings  # noqa: PLC0415 - psutil; most clusters never need it

    return readings(runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """`cpu` in processors, `memory` in bytes, `window` in seconds: what the cpu is the mean of."""

    cpu: float
    memory: int
    window: float


@dataclass(frozen=True, slots=True)
class Sample:
    """What was found out at `time`."""

    time: dt.datetime
    usage: Mapping[str, Usage] = field(default_factory=dict)


class Sampler:
    """Measures the containers that `runs` names at that moment."""

    def __init__(self, runs: Callable[[], Runs], clock: Clock, read: Read = of_processes) -> None:
        self._runs = runs
        self._read = read
        self._clock = clock
        self._before: dict[str, tuple[float, Reading]] = {}
        self._asking = asyncio.Lock()

    async def sample(self) -> Sample:
        """One measurement at a time: those who ask meanwhile wait, and find the last one fresh."""
        async with self._asking:
            if self._is_stale():
                self._before = await self._look()
                await self._clock.sleep(FIRST_LOOK_SECONDS)
            now = await self._look()
            usage = {
                key: used
                for key, (time, reading) in now.items()
                if (used := _between(self._before.get(key), time, reading)) is not None
            }
            self._remember(now)
            return Sample(self._clock.now(), usage)

    def _is_stale(self) -> bool:
        """A container began since the last look, or that is so long ago that its mean says little of the present."""
        oldest = self._clock.monotonic() - LONGEST_WINDOW
        return any(key not in self._before or self._before[key][0] < oldest for key in self._runs())

    async def _look(self) -> dict[str, tuple[float, Reading]]:
        found = await asyncio.to_thread(self._read, dict(self._runs()))
        now = self._clock.monotonic()
        return {key: (now, reading) for key, reading in found.items()}

    def _remember(self, now: Mapping[str, tuple[float, Reading]]) -> None:
        """A reading is replaced when it is old enough: means of too short a time only jump."""
        kept = {key: self._before[key] for key in now if key in self._before}
        young = {key: at for key, at in kept.items() if now[key][0] - at[0] < SHORTEST_WINDOW}
        self._before = {**now, **young}


def _between(before: tuple[float, Reading] | None, time: float, now: Reading) -> Usage | None:
    if before is None or time <= before[0]:
        return None
    window = time - before[0]
    # A process that ends unreaped by its parent takes its time with it: never less than nothing.
    cpu = max(0.0, now.cpu - before[1].cpu) / window
    return Usage(cpu=cpu, memory=now.memory, window=window)
