"""The TensorBoard beside a job, as far as it takes an operator: it is refused, it is gone, it is nobody's replica."""

from __future__ import annotations

from collections import Counter

from tarragon.client.port import DeleteOptions
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tests.operator.stage import TFJOBS, Stage, group, job
from tests.operator.test_create_backoff import Quota, operator

BOARD = "a-tensorboard"


async def submitted(stage: Stage) -> None:
    await stage.node("n")
    body = job("a", Worker=group(1))
    body["metadata"]["annotations"] = {"tarragon.dev/tensorboard": "/logs"}
    await stage.world.client.create(TFJOBS, body)


async def test_a_quota_that_has_no_room_for_it_is_told_and_the_job_goes_on(stage: Stage) -> None:
    quota = Quota(stage, 1)
    keeper = operator(stage, quota, patience=0.5)
    await submitted(stage)
    await stage.until_pods("a-worker-0")
    await stage.all_run("a-worker-0")
    await stage.until_state("a", "Running")
    await stage.world.until(lambda: bool(stage.events("FailedCreatePod")))

    (told,) = set(stage.events("FailedCreatePod"))
    assert told.startswith(f'pods "{BOARD}" is forbidden')
    await stage.plays("a-worker-0", "Succeeded", 0)
    await stage.until_state("a", "Succeeded")
    conditions = {condition["type"] for condition in stage.job("a")["status"]["conditions"]}
    assert not conditions & {"Blocked", "Stalled", "Failed"}
    assert quota.refused == 1, "it is not asked for at every look"
    await stage.kill(keeper)


async def test_it_is_made_again_when_somebody_deletes_it_also_after_the_end(stage: Stage) -> None:
    stage.start_operator()
    await submitted(stage)
    await stage.until_pods("a-worker-0", BOARD)
    await stage.all_run("a-worker-0")
    await stage.plays("a-worker-0", "Succeeded", 0)
    await stage.until_state("a", "Succeeded")
    await stage.world.client.delete(PODS, Key("default", BOARD), DeleteOptions(grace_period_seconds=0))
    await stage.world.until(lambda: Counter(stage.made())[BOARD] == 2)

    assert Counter(stage.made())["a-worker-0"] == 1
    assert set(stage.services()) == {BOARD}
