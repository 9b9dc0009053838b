"""Four nodes, three elastic trainings that fill them, and a gang that needs half of everything."""

from __future__ import annotations

import asyncio
import random
import re
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tarragon.base.clock import SystemClock
from tarragon.client.http.client import HttpClient
from tarragon.client.informer.informer import Informer
from tarragon.frameworks.tensorflow.crd import TFJOBS
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.core import NODES, PODS
from tests.cli.manifests import command
from tests.e2e.kills import until
from tests.e2e.user import EXAMPLES, User
from tests.e2e.watcher import a_client
from tests.recording.gangs import GangRecord, record_caches, report

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

Json = dict[str, Any]
NODE_NAMES = ("a", "b", "c", "d")
IMPATIENT = ("--policy", "dragon", "--aged", "2", "--idle", "4", "--cool-down", "4")
TRAININGS = ("first", "second", "third")
STEPS = 20000


def training(name: str) -> str:
    """The example, with pods that ask for a whole CPU each, under another name."""
    text = (EXAMPLES / "ps-tf1.yaml").read_text().replace("digits-ps-tf1", name)
    parts = list(yaml.safe_load_all(text))
    job = parts[-1]
    for group in job["spec"]["tfReplicaSpecs"].values():
        (container,) = group["template"]["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}}
        if "args" in container:
            container["args"][1] = str(STEPS)
    job["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 3
    return yaml.safe_dump_all(parts)


def likeness(name: str, end: Path) -> str:
    """The same job as a hundredth of the work: its replicas wait, worker 0 until there is this file."""
    parts = list(yaml.safe_load_all(training(name)))
    job = parts[-1]
    waits = f"trap 'exit 143' TERM; while [ ! -e {end} ]; do sleep 0.1; done"
    for kind, script in (("PS", waits + "; sleep 600"), ("Worker", waits)):
        resources = {"requests": {"cpu": "1", "memory": "64Mi"}}
        group = job["spec"]["tfReplicaSpecs"][kind]
        group["template"]["spec"] = {"containers": [{**command("sh", "-c", script), "resources": resources}]}
    return yaml.safe_dump(job)


def gang(name: str, workers: int, script: str) -> str:
    container = {**command("sh", "-c", script), "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}
    group = {"replicas": workers, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"tfReplicaSpecs": {"Worker": group}},
    }
    return yaml.safe_dump(job)


class Story:
    """What the watches tell, and what somebody types meanwhile."""

    def __init__(self, user: User, http: HttpClient) -> None:
        self.user = user
        clock = SystemClock()
        self.record = GangRecord()
        dice = random.Random(1)
        self.jobs = Informer(http, TFJOBS, clock, jitter=dice)
        self._pods, self._nodes = Informer(http, PODS, clock, jitter=dice), Informer(http, NODES, clock, jitter=dice)
        self.waits_of_big: set[str] = set()
        self.jobs.add_event_handler(
            lambda key, _, __: self.waits_of_big.add(self._code()) if key.name == "big" else None
        )
        record_caches(self.record, clock, jobs={TENSORFLOW: self.jobs}, pods=self._pods, nodes=self._nodes)

    @asynccontextmanager
    async def running_caches(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(cache.run()) for cache in (self._nodes, self.jobs, self._pods)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.record.end(SystemClock().monotonic())

    async def says(self, *words: str) -> str:
        ended = await asyncio.to_thread(self.user, *words)
        assert ended.code == 0, ended.err
        return ended.out

    def status(self, name: str) -> Json:
        found = [job for key, job in self.jobs.objects.items() if key.name == name]
        tarragon: Json = (found[0].status or {}).get("tarragon", {}) if found else {}
        return tarragon

    def _code(self) -> str:
        return str(self.status("big").get("admission", {}).get("wait", {}).get("code", ""))

    def state(self, name: str) -> str:
        return str(self.status(name).get("state", ""))

    def number(self) -> int:
        """Of all workers that are to be."""
        return sum(self.workers().values())

    def workers(self) -> Mapping[str, int]:
        """How many each training is to have."""
        return {name: self.status(name).get("admission", {}).get("size", {}).get("Worker", 0) for name in TRAININGS}


@asynccontextmanager
async def a_cluster_of_four(user: User) -> AsyncIterator[Story]:
    nodes = [word for name in NODE_NAMES for word in ("--node", f"name={name},cpu=4,memory=16Gi")]
    up = user.start("up", *nodes, *IMPATIENT)
    up.until("ready")
    async with a_client(user.home) as http:
        story = Story(user, http)
        async with story.running_caches():
            yield story
    up.signal(signal.SIGTERM)
    assert up.ended().code == 0


@dataclass
class Scenes:
    """What was so in each."""

    before: Mapping[str, int]
    why_big_waits: str
    small: Mapping[str, int]
    why_small: str
    again: Mapping[str, int]


async def played(story: Story, trainings: Mapping[str, str]) -> Scenes:
    user, go = story.user, story.user.folder / "go"
    for name, manifest in trainings.items():
        await story.says("submit", user.file(f"{name}.yaml", manifest))
    # Three workers and a parameter server each, then what is left.
    await until(lambda: all(story.state(name) == "Running" for name in TRAININGS) and story.number() == 12)
    before = story.workers()

    await story.says("submit", user.file("big.yaml", gang("big", 8, f"while [ ! -e {go} ]; do sleep 0.1; done")))
    why_big_waits = await story.says("why", "big")
    await until(lambda: story.state("big") == "Running")
    small = story.workers()
    why_small = "".join([await story.says("why", name) for name in TRAININGS])

    go.touch()
    await until(lambda: story.number() > sum(small.values()))
    return Scenes(before, why_big_waits, small, why_small, story.workers())


async def over(story: Story) -> None:
    await until(lambda: all(story.state(name) == "Succeeded" for name in TRAININGS), 300)


async def test_they_shrink_for_the_gang_which_starts_whole_and_grow_back_when_it_is_done(user: User) -> None:
    """With programs that only wait; what TensorFlow makes of it is the next test's."""
    end = user.folder / "end"
    async with a_cluster_of_four(user) as story:
        seen = await played(story, {name: likeness(name, end) for name in TRAININGS})
        end.touch()
        await over(story)

    assert_told_truly(story, seen)


@pytest.mark.soak
@pytest.mark.tensorflow
async def test_trainings_that_shrink_and_grow_have_done_every_step_in_the_end(
    user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_cluster_of_four(user) as story:
        listing = user.start("list", "-w")
        seen = await played(story, {name: training(name) for name in TRAININGS})
        await over(story)
        ends = [await story.says("logs", name) for name in TRAININGS]
        listing.signal(signal.SIGINT)
        rows = listing.ended().out

    summary = [f"{seen.before} -> {seen.small} -> {seen.again}", seen.why_big_waits, seen.why_small, rows]
    with capsys.disabled():
        print("", *summary, *report(story.record), sep="\n")  # noqa: T201 - the figures are what somebody runs this for
    assert_told_truly(story, seen)
    for end in ends:
        assert_every_step_is_somebodys(end)


def assert_told_truly(story: Story, seen: Scenes) -> None:
    assert {"InsufficientResources", "ResourcesReleasing"} & story.waits_of_big
    if "Waiting: " in seen.why_big_waits:  # else the command came too late, on a machine with other things to do
        assert re.search("InsufficientResources|ResourcesReleasing", seen.why_big_waits)
    sizes = [number for each in (seen.before, seen.small, seen.again) for number in each.values()]
    assert all(1 <= size <= 4 for size in sizes)
    assert sum(seen.small.values()) <= 5
    assert "made room for" in seen.why_small
    assert story.record.partial.total == 0
    assert story.record.oversold == []


def assert_every_step_is_somebodys(log: str) -> None:
    """The sum of what the workers did is what the model has been through."""
    done = re.search(r"done: steps=(\d+)", log)
    shares = re.search(r"steps by worker: (.*)", log)
    assert done
    assert shares
    assert sum(int(each.rpartition(":")[2]) for each in shares[1].split()) == int(done[1]) >= STEPS
