"""kill -9 under an MPIJob on a real control plane: of a worker, of the launcher, and of each part of the cluster."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import yaml

from tarragon.client.errors import ResourceExpired
from tarragon.frameworks.mpi.manifest.crd import MPIJOBS
from tarragon.job.phase import Phase
from tests.e2e.kills import pause
from tests.e2e.watcher import StateWatcher, Watcher
from tests.mpi_kills import LAUNCHER, WORKERS, KilledJob, Story
from tests.real.scene import connect
from tests.real.site import Site, a_site, end
from tools.controlplane import API_SERVER, ControlPlane

pytestmark = [
    pytest.mark.real,
    pytest.mark.mpi,
    pytest.mark.kubectl,
    pytest.mark.soak,
    pytest.mark.slow,
    pytest.mark.timeout(500),
]

TIMES = 20
LONGEST = 7.0
"""Seconds from the first process of a job to a little after its end, where nothing disturbs it."""
OFFER = ("--cpu", "64", "--memory", "256Gi")


class Cluster:
    """The parts of a cluster that can be killed. Others take their places."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._operator = site.installed_operator()
        self._node = site.node(*OFFER)
        self._restarts_after = 0.0

    async def kill(self, part: str, later: float) -> None:
        if part == "operator":
            self._restarts_after = later
            end(self._operator, signal.SIGKILL)
        elif part == "API server":
            self.site.plane.kill(API_SERVER)
            await pause(later)
            self.site.plane.restart(API_SERVER)
        else:
            end(self._node, signal.SIGKILL)
            await pause(later)
            self._node = await asyncio.to_thread(self.site.node, *OFFER)

    @asynccontextmanager
    async def supervised(self) -> AsyncIterator[None]:
        """The operator is started again, as its Deployment would, when it has ended: it does so without its lease."""
        task = asyncio.create_task(self._supervise())
        try:
            yield
        finally:
            assert not task.done(), task.result()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _supervise(self) -> None:
        while True:
            await pause(0.1)
            if self._operator.poll() is not None:
                await pause(self._restarts_after)
                self._operator = self.site.installed_operator()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Installed from deploy/, for all tests of this module."""
    folder = tmp_path_factory.mktemp("mpi-kills")
    plane = ControlPlane.start(folder / "control-plane")
    try:
        with a_site(plane, folder) as site:
            site.install()
            yield Cluster(site)
    finally:
        plane.stop()


@asynccontextmanager
async def a_story(cluster: Cluster, job: KilledJob, dice: random.Random) -> AsyncIterator[Story]:
    """The job is submitted; it is deleted at the end."""
    site = cluster.site
    client = partial(connect, site.plane.kubeconfig)
    pods = Watcher(client, (ResourceExpired,))
    states = StateWatcher(client, MPIJOBS, job.name, (ResourceExpired,))
    job.folder.mkdir()
    async with pods.watching(), states.watching(), cluster.supervised():
        site.kubectl("create", "-f", "-", given=yaml.safe_dump(job.manifest()))
        story = Story(job=job, pods=pods, states=states, dice=dice)
        yield story
        site.kubectl("delete", "mpijob", job.name)
        await story.until(lambda: not pods.there(job.name))


def a_job(cluster: Cluster, what: str, dice: random.Random, seed: int, limit: int = 6) -> KilledJob:
    name = f"{what.replace(' ', '-').lower()}-{limit}-{seed}"
    return KilledJob(folder=cluster.site.folder / name, name=name, limit=limit, cleans=dice.choice(["Running", "None"]))


async def kills(cluster: Cluster, story: Story, what: str) -> None:
    """Kill it at a moment."""
    dice = story.dice
    replica, _, part = what.partition(" and ")
    victim = LAUNCHER if replica == "launcher" else f"worker-{dice.randrange(WORKERS)}"
    await story.until(lambda: bool(story.job.processes(victim)) or story.states.has_ended)
    await pause(dice.uniform(0, LONGEST))
    if replica in {"worker", "launcher"}:
        story.kill(victim)
        await pause(dice.uniform(0, 1))
    else:
        part = replica
    if part:
        await cluster.kill(part, dice.choice([0, dice.uniform(0, LONGEST)]))


@pytest.mark.parametrize("seed", range(TIMES))
@pytest.mark.parametrize(
    "what",
    [
        "worker",
        "launcher",
        "operator",
        "API server",
        "node",
        "worker and operator",
        "worker and API server",
        "launcher and node",
    ],
)
async def test_a_job_succeeds_with_all_its_ranks_whatever_was_killed(cluster: Cluster, what: str, seed: int) -> None:
    dice = random.Random(f"{what} {seed}")
    job = a_job(cluster, what, dice, seed)
    async with a_story(cluster, job, dice) as story:
        await kills(cluster, story, what)
        await story.until(lambda: story.states.has_ended)
        await story.until(story.is_cleaned_up)

        log = cluster.site.kubectl("logs", f"{job.name}-launcher")
        story.check_end(log, Phase.SUCCEEDED)
        story.check_restarts(log)


@pytest.mark.parametrize("seed", range(TIMES))
async def test_a_killed_launcher_that_may_not_be_restarted_has_failed(cluster: Cluster, seed: int) -> None:
    dice = random.Random(f"launcher {seed}")
    job = a_job(cluster, "launcher", dice, seed, limit=0)
    async with a_story(cluster, job, dice) as story:
        await kills(cluster, story, "launcher")
        await story.until(lambda: story.states.has_ended)
        await story.until(story.is_cleaned_up)

        story.check_only_launcher(cluster.site.kubectl("logs", f"{job.name}-launcher"))
