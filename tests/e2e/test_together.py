"""TensorFlow's workers that march in step, one of which is killed: with the annotation all are made anew together."""

from __future__ import annotations

import asyncio
import re

import pytest
import yaml

from tarragon.job.annotations import RESTART_ANNOTATION
from tests.e2e.kills import Scene
from tests.e2e.test_training import learned
from tests.e2e.user import EXAMPLES, User, eventually, has_file
from tests.e2e.watcher import living_server, watcher_of

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow, pytest.mark.timeout(400)]


def annotated(user: User) -> str:
    documents = list(yaml.safe_load_all((EXAMPLES / "multiworker.yaml").read_text()))
    job = next(document for document in documents if document["kind"] == "TFJob")
    job["metadata"]["annotations"] = {RESTART_ANNOTATION: "gang"}
    return user.file("gang.yaml", yaml.safe_dump_all(documents))


async def test_a_killed_worker_takes_its_gang_with_it_and_all_go_on_from_the_checkpoint(user: User) -> None:
    going = user.start("run", annotated(user))
    await asyncio.to_thread(eventually, lambda: living_server(user.home))
    async with watcher_of(user.home).watching() as watcher:
        scene = Scene(home=user.home, job="digits-multiworker", watcher=watcher)
        await asyncio.to_thread(eventually, lambda: has_file(user.home, "run-1/ckpt-*.index"))
        scene.kill_program("worker-1")
        ended = await asyncio.to_thread(going.ended)
        status = await scene.status()
        made = dict(watcher.added("digits-multiworker"))

    learned(user, ended, "multiworker", "worker-0")
    assert made == {"worker-0": 2, "worker-1": 2}
    assert sum(record.total for record in status.restarts.values()) == 1
    resumed = re.findall(r"\[(worker-[01])\] continuing from step (\d+)", ended.out)
    assert {name for name, _ in resumed} == {"worker-0", "worker-1"}
    assert len({step for _, step in resumed}) == 1
