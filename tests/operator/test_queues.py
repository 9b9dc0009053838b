"""Queues, quotas and priorities, with the operator at work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import structlog.testing

from tarragon.base.resources import CPU
from tarragon.kube.core import PRIORITY_CLASSES
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.operator.scheduler.config.reload import ReloadingRules
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules
from tarragon.scheduling.policies import POLICIES
from tests.operator.stage import TFJOBS, Stage, group

CODE = "QueueQuotaExceeded"


def start(stage: Stage, **options: Any) -> None:
    stage.start(Operator(stage.world.client, stage.world.clock, OperatorOptions(seed=1, **options)).run())


def wait_of(stage: Stage, name: str) -> Any:
    return stage.admission(name).get("wait") or {}


async def test_a_quota_holds_a_job_back_until_somebody_raises_it_in_the_file(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("namespaces: {default: {quota: {cpu: 2}}}")
    await stage.node("n")
    start(stage, policy=POLICIES["fifo"], rules=ReloadingRules(file, SchedulingRules()))
    await stage.submit("a", Worker=group(2, cpu="1"))
    await stage.until_state("a", "Starting")
    await stage.submit("b", Worker=group(1, cpu="1"))
    await stage.world.until(lambda: wait_of(stage, "b").get("code") == "QueueQuotaExceeded")
    assert wait_of(stage, "b")["message"] == "the job needs 1 cpu; default holds 2 cpu of its quota of 2 cpu"

    file.write_text("namespaces: {default: {quota: {cpu: 3}}}")

    await stage.until_state("b", "Starting")


async def test_what_a_job_holds_counts_for_its_quota_while_an_edit_of_it_makes_no_sense(stage: Stage) -> None:
    await stage.node("n")
    rules = SchedulingRules(queues={"default": QueueRules(quota={CPU: 2000})})
    start(stage, policy=POLICIES["dragon"], rules=lambda: rules)
    await stage.submit("a", Worker=group(2, cpu="1"))
    await stage.until_pods("a-worker-0", "a-worker-1")
    await stage.all_run("a-worker-0", "a-worker-1")
    await stage.until_state("a", "Running")
    nonsense: dict[str, Any] = {"spec": {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": []}}}}}}
    await stage.world.client.patch(TFJOBS, Key("default", "a"), nonsense)

    await stage.submit("b", Worker=group(1, cpu="1"))

    await stage.world.until(lambda: bool(stage.admission("b")))
    assert wait_of(stage, "b").get("code") == "QueueQuotaExceeded"


async def test_a_job_of_higher_priority_gets_places_of_one_that_runs_and_that_one_keeps_its_turn(stage: Stage) -> None:
    await stage.node("n", cpu="2")
    await stage.world.client.create(
        PRIORITY_CLASSES,
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent"},
            "value": 1000,
        },
    )
    start(stage, policy=POLICIES["fifo"])
    await stage.submit("low", Worker=group(2, cpu="1"))
    await stage.until_pods("low-worker-0", "low-worker-1")
    await stage.all_run("low-worker-0", "low-worker-1")
    await stage.until_state("low", "Running")
    queued = stage.admission("low")["queued"]

    urgent = group(2, cpu="1")
    urgent["template"]["spec"]["priorityClassName"] = "urgent"
    await stage.submit("high", Worker=urgent)
    await stage.world.until(lambda: bool(stage.events("Preempted") and stage.events("ResourcesReleasing")))
    assert stage.events("Preempted") == ["TFJob default/high has priority 1000, this job has priority 0"]
    assert not [pod for pod in stage.pods() if pod.startswith("high")], "nothing is made before there is room"
    await stage.world.until(lambda: all(pod["metadata"].get("deletionTimestamp") for pod in stage.pods().values()))
    await stage.end_pods()

    await stage.until_pods("high-worker-0", "high-worker-1")
    assert stage.admission("low")["queued"] == queued
    assert stage.job("low")["status"]["tarragon"]["restarts"]["total"] == 0


def not_grown(stage: Stage, name: str) -> Any:
    conditions = (stage.job(name).get("status") or {}).get("conditions") or ()
    return next(((one["reason"], one["message"]) for one in conditions if one["type"] == "NotGrown"), None)


async def test_an_elastic_job_says_which_quota_keeps_it_small_until_it_does_not(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("namespaces: {default: {quota: {cpu: 3}}}")
    await stage.node("n")
    start(stage, rules=ReloadingRules(file, SchedulingRules()))
    await stage.submit("other", Worker=group(1, cpu="1"))
    await stage.until_pods("other-worker-0")
    bounds: dict[str, Any] = {"min-instances": 1, "max-instances": 6}
    await stage.submit("a", Worker=group(4, cpu="1"), **bounds)
    await stage.world.until(lambda: not_grown(stage, "a") is not None)
    told = not_grown(stage, "a")
    admitted = next(one["message"] for one in stage.job("a")["status"]["conditions"] if one["type"] == "Admitted")

    file.write_text("namespaces: {default: {quota: {cpu: 5}}}")
    await stage.world.until(lambda: not_grown(stage, "a") is None and "wait" not in stage.admission("a"))
    wish = {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 6}}}}
    await stage.world.client.patch(TFJOBS, Key("default", "a"), wish)
    file.write_text("namespaces: {default: {quota: {cpu: 2}}}")
    lowered = (CODE, "4 of 6 worker replicas are scheduled: the quota of default is 2 cpu")
    await stage.world.until(lambda: not_grown(stage, "a") == lowered)

    assert told == (CODE, "2 of 4 worker replicas are scheduled: the quota of default is 3 cpu")
    assert admitted == "2 of 2 replicas are scheduled; can't grow: the quota of default is 3 cpu"


async def test_what_one_job_gets_of_a_quota_is_no_news_for_the_others(stage: Stage) -> None:
    """A thousand jobs would be told that the quota lets them grow, and in the next round that it does not."""
    await stage.node("n")
    rules = SchedulingRules(queues={"default": QueueRules(quota={CPU: 4000})})
    start(stage, policy=POLICIES["dragon"], rules=lambda: rules)
    bounds: dict[str, Any] = {"min-instances": 1, "max-instances": 6}
    for name in ("other", "a", "b", "c"):
        await stage.submit(name, Worker=group(1, cpu="1"), **bounds)
    await stage.until_pods("other-worker-0", "a-worker-0", "b-worker-0", "c-worker-0")
    for name in ("a", "b", "c"):
        wish = {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 4}}}}
        await stage.world.client.patch(TFJOBS, Key("default", name), wish)
    await stage.world.until(lambda: all(not_grown(stage, name) is not None for name in ("a", "b", "c")))

    with structlog.testing.capture_logs() as lines:
        await stage.world.client.delete(TFJOBS, Key("default", "other"))
        await stage.world.until(lambda: (not_grown(stage, "a") or ("", ""))[1].startswith("2 of 4"))

    decided = [(line["job"], line["decision"]) for line in lines if line["event"] == "scheduling decision"]
    assert decided == [("a", "grow"), ("a", "wait")]


async def test_what_keeps_a_job_small_is_on_record_and_outlives_the_operator(stage: Stage) -> None:
    await stage.node("n")
    limited = Operator(
        stage.world.client,
        stage.world.clock,
        OperatorOptions(seed=1, rules=lambda: SchedulingRules(queues={"default": QueueRules(quota={CPU: 2000})})),
    )
    first = asyncio.create_task(limited.run())
    bounds: dict[str, Any] = {"min-instances": 1, "max-instances": 3}
    await stage.submit("a", Worker=group(3, cpu="1"), **bounds)
    await stage.world.until(lambda: not_grown(stage, "a") is not None)
    await stage.kill(first)
    await stage.world.client.patch(
        TFJOBS, Key("default", "a"), {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 2}}}}
    )

    start(stage, rules=lambda: SchedulingRules(queues={"default": QueueRules(quota={CPU: 2000})}))

    await stage.world.until(lambda: not_grown(stage, "a") is None and "wait" not in stage.admission("a"))
