"""The usage of containers: measurements of real processes, and windows of samples with a manual clock."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tarragon.base.clock import FakeClock, SystemClock
from tarragon.localcluster.kubelet.resources.sampler import (
    FIRST_WINDOW_SECONDS,
    UsageSample,
    UsageSampler,
    read_processes,
)
from tarragon.localcluster.kubelet.resources.usage_reading import UsageReading
from tests.localcluster.kubelet.waiting import eventually
from tests.localcluster.kubelet.world import Json, World

MEBIBYTE = 2**20
HOLDS_MEMORY = f"import time; held = bytearray(b'x') * ({200 * MEBIBYTE}); print('holds', flush=True); time.sleep(1000)"


def runs_of(world: World) -> Mapping[str, Path]:
    assert world.kubelet
    return {f"{uid}/{name}": folder for uid, runs in world.kubelet.live_runs().items() for name, folder in runs.items()}


async def printed(world: World, pod: Json, word: str) -> None:
    """Return when the container has printed this."""
    log = world.node / "logs/default/p" / pod["metadata"]["uid"] / "main/0.log"
    await eventually(lambda: log.exists() and word in log.read_text())


async def test_the_memory_of_a_container_is_the_sum_of_its_processes(world: World) -> None:
    world.start_kubelet()
    pod = await world.run(f'{sys.executable} -c "{HOLDS_MEMORY}" & wait')
    await printed(world, pod, "holds")

    (reading,) = read_processes(runs_of(world)).values()

    assert 200 * MEBIBYTE < reading.memory < 260 * MEBIBYTE


async def test_the_cpu_time_of_ended_children_counts_for_the_container(world: World) -> None:
    world.start_kubelet()
    burns = "import time\nwhile time.process_time() < 0.3: pass"
    pod = await world.run(f'{sys.executable} -c "{burns}"; echo burnt; sleep 1000')
    await printed(world, pod, "burnt")

    (reading,) = read_processes(runs_of(world)).values()

    assert reading.cpu > 0.25  # the system counts in hundredths


async def test_an_ended_container_has_no_usage(world: World) -> None:
    world.start_kubelet()
    await world.run("sleep 1000")
    await world.phase("Running")
    runs = runs_of(world)
    await world.delete(grace=0)
    await world.vanished()

    assert runs
    await eventually(lambda: not read_processes(runs))


async def test_a_busy_container_uses_cpu_and_a_sleeping_one_does_not(world: World) -> None:
    world.start_kubelet()
    await world.run("while :; do :; done", name="busy")
    await world.run("sleep 1000", name="idle")
    busy = await world.phase("Running", "busy")
    idle = await world.phase("Running", "idle")

    used = (await UsageSampler(lambda: runs_of(world), SystemClock()).sample()).usage

    assert used[f"{busy['metadata']['uid']}/main"].cpu > 0.05  # of a processor that is shared with other tests
    assert used[f"{idle['metadata']['uid']}/main"].cpu < 0.05


class Meter:
    """Containers with a scripted usage."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.used: dict[str, float] = {}
        self.looks = 0
        self.sampler = UsageSampler(lambda: dict.fromkeys(self.used, Path()), self.clock, self._read)

    def _read(self, runs: Mapping[str, Path]) -> Mapping[str, UsageReading]:
        self.looks += 1
        return {key: UsageReading(cpu=self.used[key], memory=7) for key in runs}

    async def sample(self) -> UsageSample:
        asked = asyncio.create_task(self.sampler.sample())
        while not asked.done():
            await asyncio.sleep(0)  # noqa: TID251 - lets the thread and the task run; no time passes
            if self.clock.next_due() is not None:
                self.clock.advance(FIRST_WINDOW_SECONDS)
        return asked.result()


async def test_the_first_sample_takes_half_a_second() -> None:
    meter = Meter()
    meter.used["a"] = 100.0

    usage = (await meter.sample()).usage["a"]

    assert meter.looks == 2
    assert usage.window >= FIRST_WINDOW_SECONDS
    assert (usage.cpu, usage.memory) == (0.0, 7)


async def test_a_later_sample_is_the_mean_since_the_previous_one_without_waiting() -> None:
    meter = Meter()
    meter.used["a"] = 100.0
    await meter.sample()
    meter.clock.advance(20)
    meter.used["a"] = 130.0

    usage = (await meter.sample()).usage["a"]

    assert meter.looks == 3
    assert usage.cpu == pytest.approx(30 / usage.window)
    assert 20 <= usage.window < 25


async def test_an_old_reading_is_not_used_for_a_sample() -> None:
    meter = Meter()
    meter.used["a"] = 0.0
    await meter.sample()
    meter.clock.advance(3600)
    meter.used["a"] = 3600.0  # after an hour of work, the container is idle

    assert (await meter.sample()).usage["a"].cpu == 0.0


async def test_a_container_that_has_just_started_is_measured() -> None:
    meter = Meter()
    meter.used["a"] = 1.0
    await meter.sample()
    meter.clock.advance(10)
    meter.used["b"] = 1.0

    assert set((await meter.sample()).usage) == {"a", "b"}


async def test_nothing_is_measured_when_nothing_runs() -> None:
    assert (await Meter().sample()).usage == {}
