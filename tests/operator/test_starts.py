"""Pods that are there and can't start, and what becomes of the gang's places."""

from __future__ import annotations

import asyncio
from typing import Any

from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.plan.objects.settings import OperatorSettings
from tests.operator.stage import Stage, group


def operator(stage: Stage, start_patience: float) -> asyncio.Task[None]:
    options = OperatorOptions(settings=OperatorSettings(start_timeout=start_patience), seed=1)
    return asyncio.create_task(Operator(stage.world.client, stage.world.clock, options).run())


async def waits(stage: Stage, pod: str, reason: str, message: str = "") -> None:
    """As its kubelet reports a container that does not run."""
    state = {"waiting": {"reason": reason, "message": message}}
    container = {"name": "tensorflow", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    status = {"status": {"phase": "Pending", "containerStatuses": [container]}}
    await stage.world.client.patch(PODS, Key("default", pod), status, subresource="status")


async def test_an_elastic_gang_goes_on_without_the_last_one_that_can_not_start(stage: Stage) -> None:
    await stage.node("n")
    keeper = operator(stage, 0.5)
    elastic: Any = {"min-instances": 1, "max-instances": 3}
    await stage.submit("a", PS=group(1), Worker=group(3), **elastic)
    pods = {"a-ps-0", "a-worker-0", "a-worker-1", "a-worker-2"}
    await stage.world.until(lambda: set(stage.pods()) == pods)
    await stage.all_run("a-ps-0", "a-worker-0", "a-worker-1")
    await waits(stage, "a-worker-2", "ErrImagePull", "no such host")

    await stage.world.until(lambda: stage.admission("a").get("size", {}).get("Worker") == 2)
    assert stage.admission("a")["wait"] == {"code": "ImagePullBackOff", "message": "worker-2: no such host"}
    assert "deletionTimestamp" not in stage.pods()["a-worker-1"]["metadata"]
    await stage.kill(keeper)


async def test_the_slow_pull_of_an_image_takes_nothing_away(stage: Stage) -> None:
    await stage.node("n")
    keeper = operator(stage, 0.0)
    await stage.submit("a", Worker=group(2))
    await stage.world.until(lambda: set(stage.pods()) == {"a-worker-0", "a-worker-1"})
    for name in ("a-worker-0", "a-worker-1"):
        await waits(stage, name, "ContainerCreating")
    before = {name: pod["metadata"]["uid"] for name, pod in stage.pods().items()}
    await stage.submit("b", Worker=group(1))
    await stage.world.until(lambda: "b-worker-0" in stage.pods())
    await stage.all_run("a-worker-0", "a-worker-1", "b-worker-0")
    await stage.until_state("a", "Running")

    assert {name: stage.pods()[name]["metadata"]["uid"] for name in before} == before
    assert "obstacle" not in stage.job("a")["status"]["tarragon"]
    await stage.kill(keeper)
