"""kill -9 of a worker, of the launcher and of the cluster under an MPIJob: its status is true each time."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from tarragon.frameworks.mpi.manifest.crd import MPIJOBS
from tarragon.job.phase import Phase
from tests.cli.conftest import RunningCommand
from tests.e2e.kills import kill, pause, until
from tests.e2e.user import User
from tests.e2e.watcher import StateWatcher, a_client, living_server, watcher_of
from tests.mpi_environments import mpi_environment
from tests.mpi_kills import LAUNCHER, STEPS, WORKERS, KilledJob, Story

pytestmark = [pytest.mark.slow, pytest.mark.mpi, pytest.mark.timeout(400)]

TIMES = 20
LONGEST = 7.0
"""Seconds from the first process of a job to a little after its end, where nothing disturbs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The user's, with the clusters that were started in the place of killed ones."""

    user: User
    clusters: list[RunningCommand] = field(default_factory=list)

    async def kill_cluster(self, later: float) -> None:
        """There is another one soon."""
        server = living_server(self.user.home)
        assert server is not None
        kill(server.pid)
        await until(lambda: living_server(self.user.home) is None)
        await pause(later)
        self.clusters.append(self.user.start("up"))
        await asyncio.to_thread(self.clusters[-1].until, "ready")


@pytest.fixture
def machine(user: User) -> Iterator[Machine]:
    made = Machine(user=user)
    yield made
    for cluster in made.clusters:
        cluster.signal(signal.SIGINT)
        cluster.ended()


@asynccontextmanager
async def a_story(user: User, job: KilledJob, dice: random.Random) -> AsyncIterator[Story]:
    """The job is submitted."""
    file = user.file("pi.json", json.dumps(job.manifest()))
    submitted = await asyncio.to_thread(user, "submit", file, "--image-env", f"mpi={mpi_environment('openmpi')}")
    assert submitted.code == 0, submitted.err
    watcher = watcher_of(user.home)
    states = StateWatcher(partial(a_client, user.home), MPIJOBS, job.name)
    async with watcher.watching(), states.watching():
        yield Story(job=job, pods=watcher, states=states, dice=dice)


async def kills(machine: Machine, story: Story, what: str) -> None:
    """Kill it at a moment."""
    dice = story.dice
    replica = LAUNCHER if "launcher" in what else f"worker-{dice.randrange(WORKERS)}"
    await story.until(lambda: bool(story.job.processes(replica)) or story.states.has_ended)
    await pause(dice.uniform(0, LONGEST))
    if what == "rank":
        story.kill_rank()
    elif what != "cluster":
        story.kill(replica)
        await pause(dice.uniform(0, 1))
    if "cluster" in what:
        await machine.kill_cluster(dice.choice([0, dice.uniform(0, LONGEST)]))


async def log_of(user: User, story: Story) -> str:
    return (await asyncio.to_thread(user, "logs", f"mpijob/{story.job.name}", "--replica", "launcher")).out


def cases(*kinds: str) -> list[Any]:
    """Each kind so many times; the first case is quick enough for every run of the tests."""
    found = [(kind, seed) for kind in kinds for seed in range(TIMES)]
    return [pytest.param(*found[0]), *(pytest.param(*each, marks=pytest.mark.soak) for each in found[1:])]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(TIMES))
@pytest.mark.parametrize(
    "what", ["worker", "launcher", "rank", "cluster", "worker and cluster", "launcher and cluster"]
)
async def test_a_job_succeeds_with_all_its_ranks_whatever_was_killed(machine: Machine, what: str, seed: int) -> None:
    dice = random.Random(f"{what} {seed}")
    job = KilledJob(folder=machine.user.folder, name="pi", cleans=dice.choice(["Running", "None"]))
    async with a_story(machine.user, job, dice) as story:
        await kills(machine, story, what)
        await story.until(lambda: story.states.has_ended)
        await story.until(story.is_cleaned_up)

        log = await log_of(machine.user, story)
        story.check_end(log, Phase.SUCCEEDED)
        story.check_restarts(log)


@pytest.mark.parametrize(("what", "seed"), cases("launcher", "launcher and cluster"))
async def test_a_killed_launcher_that_may_not_be_restarted_has_failed(machine: Machine, what: str, seed: int) -> None:
    dice = random.Random(f"{what} {seed}")
    job = KilledJob(folder=machine.user.folder, name="pi", limit=0)
    async with a_story(machine.user, job, dice) as story:
        await kills(machine, story, what)
        await story.until(lambda: story.states.has_ended)
        await story.until(story.is_cleaned_up)

        story.check_only_launcher(await log_of(machine.user, story))


@pytest.mark.parametrize(("what", "seed"), cases("nothing", "cluster"))
async def test_a_program_that_fails_runs_as_often_as_its_limit_says(machine: Machine, what: str, seed: int) -> None:
    dice = random.Random(f"fails {what} {seed}")
    limit = dice.randrange(2)
    job = KilledJob(folder=machine.user.folder, name="pi", limit=limit, fails_at=dice.randrange(STEPS // 2))
    async with a_story(machine.user, job, dice) as story:
        if what == "cluster":
            await kills(machine, story, what)
        await story.until(lambda: story.states.has_ended)
        await story.until(story.is_cleaned_up)

        story.check_end(await log_of(machine.user, story), Phase.FAILED)
        assert story.launchers == limit + 1
        story.check_limit("launcher-0: exit code 1")
