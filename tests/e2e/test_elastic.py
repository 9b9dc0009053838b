"""TensorFlow's workers come, go and fall while the job trains, and every step is counted once."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from tarragon.job.annotations import RESIZE_ANNOTATION
from tests.cli.conftest import RunningCommand
from tests.e2e.kills import Scene
from tests.e2e.test_training import learned
from tests.e2e.user import EXAMPLES, User, eventually, has_file
from tests.e2e.watcher import living_server, watcher_of

JOB = "digits-ps-tf1"


PATIENT = ("--policy", "dragon", "--idle", "3600")
"""So that nobody joins but on request, however long this machine takes."""


def at_most_three(user: User) -> str:
    """For so long that all have their turn."""
    documents = list(yaml.safe_load_all((EXAMPLES / "ps-tf1.yaml").read_text()))
    documents[2]["spec"]["max-instances"] = 3
    (container,) = documents[2]["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["args"][1] = "6000"
    return user.file("elastic.yaml", yaml.safe_dump_all(documents))


@contextmanager
def paused(scene: Scene, *replicas: str) -> Iterator[None]:
    """So that the job is not done before somebody has joined, however slow the machine."""
    pids = [state.main.pid for name, state in scene.running().items() if name in replicas and state.main]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def story(user: User, scene: Scene, going: RunningCommand) -> None:
    """Two train, a third one comes, goes again, one is killed and comes back."""
    going.until("[worker-0] step")
    going.until("[worker-1] step")
    with paused(scene, "worker-0", "worker-1"):
        assert user("scale", JOB, "--workers", "3").code == 0
        going.until("[worker-2] in training")
    going.until("[worker-2] step")
    with paused(scene, "worker-0", "worker-1"):
        assert user("scale", JOB, "--workers", "2").code == 0
        going.until("[worker-2] leaving before 20")
    with paused(scene, "worker-0"):
        scene.kill_program("worker-1")
        going.until("[worker-1] in training")


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.timeout(400)
async def test_workers_come_and_go_and_their_steps_add_up_to_the_global_step(user: User) -> None:
    up = user.start("up", *PATIENT)
    await asyncio.to_thread(up.until, "ready")
    going = user.start("run", at_most_three(user))
    async with watcher_of(user.home).watching() as watcher:
        scene = Scene(home=user.home, job=JOB, watcher=watcher)
        await asyncio.to_thread(story, user, scene, going)
        ended = await asyncio.to_thread(going.ended)
        status = await scene.status()
        made = dict(watcher.added(JOB))

    learned(user, ended, "ps-tf1", "worker-0")
    shares = [int(each) for each in re.findall(r"worker-\d:(\d+)", _only(r"steps by worker: (.+)", ended.out))]
    assert min(shares) > 0
    assert sum(shares) == int(_only(r"done: steps=(\d+) .+", ended.out))
    assert made == {"ps-0": 1, "worker-0": 1, "worker-1": 1, "worker-2": 1}
    assert {str(replica): record.total for replica, record in status.restarts.items()} == {"worker-1": 1}
    described = user("describe", JOB).out
    assert "3 -> 2 workers" in described
    assert "2 -> 3 workers" in described
    up.signal(signal.SIGTERM)
    assert up.ended().code == 0


def in_step(user: User) -> str:
    """Three workers of MultiWorkerMirroredStrategy, of which one may go."""
    documents = list(yaml.safe_load_all((EXAMPLES / "multiworker.yaml").read_text()))
    job = documents[2]
    job["metadata"]["annotations"] = {RESIZE_ANNOTATION: "restart"}
    job["spec"] |= {"min-instances": 2, "max-instances": 3}
    job["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 3
    return user.file("in-step.yaml", yaml.safe_dump_all(documents))


def shrinks(user: User, going: RunningCommand) -> None:
    going.until("[worker-0] step")
    eventually(lambda: has_file(user.home, "run-1/ckpt-*.index"))
    scaled = user("scale", "digits-multiworker", "--workers", "2")
    assert "started again at the new size" in scaled.out + scaled.err


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.timeout(400)
async def test_workers_that_march_in_step_go_on_as_a_smaller_world_from_the_checkpoint(user: User) -> None:
    going = user.start("run", in_step(user))
    await asyncio.to_thread(eventually, lambda: living_server(user.home))
    async with watcher_of(user.home).watching() as watcher:
        scene = Scene(home=user.home, job="digits-multiworker", watcher=watcher)
        await asyncio.to_thread(shrinks, user, going)
        ended = await asyncio.to_thread(going.ended)
        status = await scene.status()
        made = dict(watcher.added("digits-multiworker"))

    assert ended.code == 0, ended.err
    assert made == {"worker-0": 2, "worker-1": 2, "worker-2": 1}
    assert sum(record.total for record in status.restarts.values()) == 0
    resumed = re.findall(r"\[(worker-[0-2])\] continuing from step (\d+)", ended.out)
    assert {name for name, _ in resumed} == {"worker-0", "worker-1"}
    assert len({step for _, step in resumed}) == 1


def _only(pattern: str, out: str) -> str:
    (found,) = re.findall(rf"^\[worker-0\] {pattern}$", out, re.MULTILINE)
    return str(found)
