"""A launcher that is created only once its workers are ready: its place is kept, and it is not missed."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.plan.objects.settings import OperatorSettings
from tests.operator.stage import Stage, group
from tests.plan.launcher_world import launcher_framework


@pytest.fixture
async def launching(stage: Stage) -> Stage:
    await stage.node("n", cpu="3")
    settings = OperatorSettings(start_timeout=0.5)
    options = OperatorOptions(seed=1, settings=settings, frameworks=(launcher_framework(WORKER),))
    stage.start(Operator(stage.world.client, stage.world.clock, options).run())
    return stage


async def test_the_place_of_a_launcher_that_waits_is_nobody_elses(launching: Stage) -> None:
    await launching.submit("a", Chief=group(1, cpu="1"), Worker=group(2, cpu="1"))
    await launching.until_pods("a-worker-0", "a-worker-1")
    await launching.submit("b", Worker=group(1, cpu="1"))
    await launching.world.until(lambda: launching.admission("b").get("wait") is not None)
    assert set(launching.pods()) == {"a-worker-0", "a-worker-1"}

    await launching.all_run("a-worker-0", "a-worker-1")
    await launching.until_pods("a-worker-0", "a-worker-1", "a-chief-0")
    await launching.plays("a-chief-0", "Running")
    await launching.until_state("a", "Running")
    assert "admitted" not in launching.admission("b")


async def test_an_elastic_gang_whose_launcher_waits_goes_on_without_the_worker_that_can_not_start(
    launching: Stage,
) -> None:
    elastic: dict[str, Any] = {"min-instances": 1, "max-instances": 2}
    await launching.submit("a", Chief=group(1), Worker=group(2), **elastic)
    await launching.until_pods("a-worker-0", "a-worker-1")
    before = launching.pods()["a-worker-0"]["metadata"]["uid"]
    await launching.plays("a-worker-0", "Running")
    state = {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}
    container = {"name": "tensorflow", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    status = {"status": {"phase": "Pending", "containerStatuses": [container]}}
    await launching.world.client.patch(PODS, Key("default", "a-worker-1"), status, subresource="status")

    await launching.world.until(lambda: launching.admission("a").get("size", {}).get("Worker") == 1)
    await launching.world.until(lambda: "a-chief-0" in launching.pods())
    assert launching.pods()["a-worker-0"]["metadata"]["uid"] == before
