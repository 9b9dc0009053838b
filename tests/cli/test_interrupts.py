"""What `run` on this machine does at each Ctrl-C, with pods that do not end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tarragon.base.clock import FakeClock
from tarragon.cli.follow import attending
from tarragon.cli.follow.attending import KILL_TIMEOUT, FollowEnd, FollowSession
from tarragon.cli.jobview.jobs import find_job
from tarragon.cli.jobview.target import CommandPrefix
from tarragon.cli.output.interrupts import SignalHandler
from tarragon.cli.output.terminal import Terminal
from tarragon.client.port import Client
from tests.localcluster.kubelet.waiting import eventually
from tests.operator.stage import Stage, a_stage, group

PLAIN = Terminal(colors_out=False, colors_err=False, is_live=False, shows_logs=False)
NOT_ENDED = "Its replicas are killed, but have not all ended yet.\n"


class RecordingClock(FakeClock):
    """Knows for how long it was asked to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await super().sleep(seconds)


class Here:
    """A cluster of this machine whose job goes on until somebody ends it. No kubelet ends its pods."""

    is_local = True
    nodes_folder = None
    command_prefix = CommandPrefix("tarragon", "default")

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    @asynccontextmanager
    async def writing(self, _: object) -> AsyncIterator[Client]:
        yield self._stage.world.client

    async def follow(self, *_: object) -> None:
        await asyncio.Event().wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A `run` whose user presses Ctrl-C."""

    stage: Stage
    clock: RecordingClock
    ending: asyncio.Task[FollowEnd]
    press: Callable[[], None]
    errors: StringIO
    """What it writes to stderr."""

    async def is_killing(self) -> None:
        """Two Ctrl-C: the job is deleted, then its pods are killed, and `run` waits for their end."""
        self.press()
        await self.stage.world.until(lambda: "deletionTimestamp" in self.stage.job("job")["metadata"])
        self.press()
        await eventually(lambda: KILL_TIMEOUT in self.clock.asked, seconds=20)
        assert self.stage.pods()["job-worker-0"]["metadata"]["deletionGracePeriodSeconds"] == 1


@pytest.fixture
async def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    errors = StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    signals = SignalHandler(asyncio.get_running_loop())

    @contextmanager
    def pressed_here() -> Iterator[SignalHandler]:
        yield signals

    monkeypatch.setattr(attending, "handled_signals", pressed_here)
    async with a_stage(tmp_path) as stage:
        await stage.node("a")
        stage.start_operator()
        await stage.submit("job", Worker=group(1))
        await stage.until_pods("job-worker-0")
        await stage.all_run("job-worker-0")
        job = await find_job(stage.world.client, "job", "default")
        target: Any = Here(stage)
        clock = RecordingClock()
        ending = asyncio.create_task(FollowSession(job, target, PLAIN, clock, 0).run(None))
        yield Run(stage=stage, clock=clock, ending=ending, press=signals.on_interrupt, errors=errors)
        ending.cancel()


async def test_a_second_ctrl_c_returns_when_no_pod_is_left(run: Run) -> None:
    await run.is_killing()
    await run.stage.end_pods()

    assert await run.ending is FollowEnd.KILLED
    assert NOT_ENDED not in run.errors.getvalue()


async def test_a_third_ctrl_c_does_not_wait_for_what_is_killed(run: Run) -> None:
    await run.is_killing()
    assert not run.ending.done()
    run.press()

    assert await run.ending is FollowEnd.KILLED
    assert run.errors.getvalue().endswith(NOT_ENDED)
    assert "job-worker-0" in run.stage.pods()


async def test_what_is_killed_is_waited_for_ten_seconds_at_most(run: Run) -> None:
    await run.is_killing()
    run.clock.advance(KILL_TIMEOUT - 0.5)
    asked = len(run.clock.asked)
    await eventually(lambda: len(run.clock.asked) > asked, seconds=20)  # the next redraw: all that was due has happened
    assert not run.ending.done()
    run.clock.advance(0.5)

    assert await run.ending is FollowEnd.KILLED
    assert run.errors.getvalue().endswith(NOT_ENDED)
