"""Elastic MPI trainings that are resized, stopped and continued: each step counts once in the end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from bench.support.elastic_trainings import Observer, Training, observing, steps_of, unsuccessful
from tarragon.kube.core import PRIORITY_CLASSES
from tests.cli.manifests import command, job
from tests.e2e.test_mpi import pod_processes
from tests.e2e.user import User

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.mpi, pytest.mark.timeout(500)]

PATIENCE = 400.0
STAGGERED = (
    Training(name="first", steps=300),
    Training(name="second", steps=100, submitted_after=5),
    Training(name="third", steps=200, submitted_after=10),
    Training(name="fourth", steps=50, submitted_after=20),
)
Json = dict[str, Any]
URGENT = "urgent"


@asynccontextmanager
async def a_cluster(user: User, policy: str, nodes: str) -> AsyncIterator[Observer]:
    """Nodes with these names, of four CPUs each."""
    words = [word for name in nodes for word in ("--node", f"name={name},cpu=4,memory=16Gi")]
    up = user.start("up", *words, "--policy", policy, "--idle", "5", "--cool-down", "5")
    await asyncio.to_thread(up.until, "ready")
    try:
        async with observing(user.home, lambda _: None) as observer:
            yield observer
    finally:
        up.signal(signal.SIGTERM)
        ended = up.ended()
    assert ended.code == 0


def problems(observer: Observer, trainings: Sequence[Training]) -> Mapping[str, Sequence[str]]:
    found = {each.name: steps_of(each, observer.folder(each)).problems for each in trainings}
    return {name: reasons for name, reasons in found.items() if reasons}


PRIORITY: Json = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": URGENT},
    "value": 1000,
}


def urgent_gang(seconds: int) -> str:
    """All four CPUs of a node for a while, before all others."""
    container = {**command("sleep", str(seconds)), "resources": {"requests": {"cpu": "1"}}}
    spec = {"priorityClassName": URGENT, "containers": [container]}
    workers = {"replicas": 4, "restartPolicy": "Never", "template": {"spec": spec}}
    return job(URGENT, Worker=workers)


async def test_trainings_that_share_four_nodes_have_done_every_step_once(user: User) -> None:
    async with a_cluster(user, "elastic", "abcd") as observer:
        await observer.run(STAGGERED, PATIENCE)
        found = problems(observer, STAGGERED)

    assert unsuccessful(observer.histories) == []
    assert found == {}
    assert sum(history.resizes for history in observer.histories.values()) > 0


@pytest.mark.parametrize("policy", ["elastic", "dragon"])
async def test_a_training_that_is_stopped_goes_on_from_its_checkpoint(user: User, policy: str) -> None:
    training = Training(name="patient", steps=100)
    async with a_cluster(user, policy, "a") as observer:
        going = asyncio.create_task(observer.run([training], PATIENCE))
        await observer.until(lambda: observer.has_reported(training.name, 20))
        await observer.client.create(PRIORITY_CLASSES, PRIORITY)
        submitted = await asyncio.to_thread(user, "submit", user.file("urgent.json", urgent_gang(3)))
        assert submitted.code == 0, submitted.err
        await going
        steps = steps_of(training, observer.folder(training))

    history = observer.histories[training.name]
    assert unsuccessful(observer.histories) == []
    assert steps.problems == []
    assert history.evictions == 1
    assert steps.starts == 2
    assert steps.redone < 20


async def test_a_training_that_loses_a_worker_goes_on_from_its_checkpoint(user: User) -> None:
    """Mpirun of Open MPI 5 exits with 0 when it loses the daemon of a worker."""
    training = Training(name="robbed", steps=150)
    async with a_cluster(user, "dragon", "a") as observer:
        going = asyncio.create_task(observer.run([training], PATIENCE))
        await observer.until(lambda: observer.has_reported(training.name, 20))
        for pid in pod_processes(user, "robbed-worker-2"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await going
        steps = steps_of(training, observer.folder(training))
        log = (await asyncio.to_thread(user, "logs", "mpijob/robbed", "--replica", "launcher")).out

    assert unsuccessful(observer.histories) == []
    assert steps.problems == [], log
    assert steps.starts >= 2
