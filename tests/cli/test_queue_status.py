"""What `tarragon why` says of a job that waits: its place, what is short, who holds it, and when it may start."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tarragon.cli.explain.explanation import explanation_lines
from tarragon.cli.explain.queue_status import QueueStatus, queue_status
from tarragon.cli.jobview.jobs import find_job
from tarragon.cli.jobview.target import ClusterReader, CommandPrefix
from tarragon.cli.report.wait_report import start_estimate_fields, start_estimate_line
from tarragon.client.errors import Forbidden, Unavailable
from tarragon.client.port import ALL_OBJECTS, ObjectList, Selector
from tarragon.kube.codec import format_time
from tarragon.kube.core import CONFIG_MAPS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES
from tarragon.kube.meta import Key, Resource
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.plan.config.published import RULES_CONFIG_MAP, SHARES_CONFIG_MAP
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules
from tarragon.scheduling.explain.forecast import Forecast, NoForecast
from tarragon.scheduling.policies import POLICIES
from tests.operator.stage import TFJOBS, Stage, a_stage, group, job

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
GPU = "nvidia.com/gpu"


class RestrictedReader:
    """Reads as somebody who may list these kinds in their own namespace only, or not at all."""

    def __init__(self, looker: ClusterReader, hidden: Mapping[str, bool]) -> None:
        """By full name: whether it can be listed in a namespace."""
        self._looker = looker
        self._hidden = hidden

    async def get(self, resource: Resource[Any], key: Key) -> Any:
        return await self._looker.get(resource, key)

    async def list(self, resource: Resource[Any], selection: Selector = ALL_OBJECTS) -> ObjectList[Any]:
        visible = self._hidden.get(resource.full_name, True)
        if not visible or (resource.full_name in self._hidden and not selection.namespace):
            raise Forbidden({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"})
        return await self._looker.list(resource, selection)


async def standing(stage: Stage, name: str, hidden: Mapping[str, bool] | None = None) -> QueueStatus:
    reader = RestrictedReader(stage.world.client, hidden or {})
    return await queue_status(reader, await find_job(reader, name, "default"), stage.world.clock)


async def waits(stage: Stage, *names: str) -> None:
    await stage.world.until(lambda: all("wait" in stage.admission(name) for name in names))


async def runs_and_ends(stage: Stage, name: str, pods: Sequence[str]) -> None:
    """A worker that asks for a GPU; `pods` are there when it runs."""
    await stage.submit(name, Worker=group(1, **{GPU: "1"}))
    await stage.until_pods(*pods)
    await stage.plays(f"{name}-worker-0", "Running")
    await stage.until_state(name, "Running")
    await stage.plays(f"{name}-worker-0", "Succeeded", 0)
    await stage.until_state(name, "Succeeded")
    await lasted_a_minute(stage, name)


async def lasted_a_minute(stage: Stage, name: str) -> None:
    completed = dt.datetime.fromisoformat(stage.job(name)["status"]["completionTime"])
    admitted = format_time(completed - dt.timedelta(seconds=60))
    patch = {"status": {"tarragon": {"admission": {"admitted": admitted}}}}
    await stage.world.client.patch(TFJOBS, Key("default", name), patch, subresource="status")
    await stage.world.until(lambda: stage.admission(name)["admitted"] == admitted)


async def start(stage: Stage, **options: Any) -> None:
    """An operator that has said by what it decides."""
    made = OperatorOptions(**{"seed": 1, "publish_namespace": "default", **options})
    stage.start(Operator(stage.world.client, stage.world.clock, made).run())
    await stage.world.until(lambda: f"configmaps/default/{RULES_CONFIG_MAP}" in stage.world.objects)


async def busy(stage: Stage, **options: Any) -> None:
    """Two nodes of two GPUs: three of them are held by a job, one by a pod of somebody else; two jobs wait."""
    for name in ("a", "b"):
        await stage.node(name, **{GPU: "2"})
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: "1"}}}
    pod = {"metadata": {"name": "other", "namespace": "default"}, "spec": {"nodeName": "b", "containers": [container]}}
    await stage.world.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod})
    await start(stage, **options)
    await stage.submit("first", Worker=group(3, **{GPU: "1"}))
    await stage.until_pods("other", *(f"first-worker-{index}" for index in range(3)))
    await stage.submit("second", Worker=group(2, **{GPU: "1"}))
    await waits(stage, "second")
    await stage.submit("third", Worker=group(1, **{GPU: "1"}))
    await waits(stage, "third")


async def test_it_is_told_who_is_ahead_who_holds_what_and_what_would_help(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage)
        third = await standing(stage, "third")
        lines = list(third.lines(NOON))

    assert third.position_text == ", at position 2 of 2"
    assert lines == [
        "  ahead of it: second (2 replicas, 2 GPUs)",
        "  node a has no room: 0 of 2 nvidia.com/gpu free; held by first (2 nvidia.com/gpu)",
        (
            "  node b has no room: 0 of 2 nvidia.com/gpu free; held by first (1 nvidia.com/gpu) and "
            "pod default/other (1 nvidia.com/gpu)"
        ),
        "  the job could start when first ends",
        (
            "  its start time can't be estimated: there is no finished job (deleted ones do not count), so run times "
            "cannot be estimated"
        ),
        "  more: tarragon docs scheduling#why-a-job-waits",
    ]


async def test_by_what_the_operator_decides_is_told_where_that_is_not_the_default(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        rules = SchedulingRules(
            starvation_seconds=600, is_preemption_enabled=False, queues={"default": QueueRules(weight=2)}
        )
        await busy(stage, policy=POLICIES["fifo"], rules=lambda: rules)
        third = await standing(stage, "third")

    line = "  the operator is configured with the policy fifo, no preemption and --aged 600"
    assert next(third.lines(NOON)) == line
    assert third.fields()["operator"] == {
        "policy": "fifo",
        "aged": 600,
        "idle": 60,
        "coolDown": 60,
        "fair": False,
        "preempt": False,
        "assumed": False,
    }


async def test_of_an_operator_that_says_nothing_the_defaults_are_assumed_and_that_is_told(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage)
        client, first_lines = stage.world.client, []
        for change in ({"policy": "lottery"}, {"policy": None}):
            await client.patch(CONFIG_MAPS, Key("default", RULES_CONFIG_MAP), {"data": change})
            first_lines.append(next((await standing(stage, "third")).lines(NOON)))
        await client.delete(CONFIG_MAPS, Key("default", RULES_CONFIG_MAP))
        third = await standing(stage, "third")
        first_lines.append(next(third.lines(NOON)))

    words = "  assuming the default policy and rules of an operator: "
    version = f"{words}the one published in default is from an incompatible version"
    assert first_lines == [
        version,
        version,
        f"{words}it has published none that you may read; older versions publish none",
    ]
    assert third.fields()["operator"]["assumed"] is True


async def test_who_may_not_read_the_shares_is_told_so_and_not_guessed_for(tmp_path: Path) -> None:
    class Blind(RestrictedReader):
        async def get(self, resource: Resource[Any], key: Key) -> Any:
            if key.name == SHARES_CONFIG_MAP:
                raise Forbidden({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"})
            return await super().get(resource, key)

    async with a_stage(tmp_path) as stage:
        rules = SchedulingRules(is_fair_share=True, queues={"default": QueueRules(weight=2)})
        await busy(stage, rules=lambda: rules)
        reader = Blind(stage.world.client, {"configmaps": False})
        third = await queue_status(reader, await find_job(reader, "third", "default"), stage.world.clock)

    hidden = "weights and quotas of namespaces (the order of the queue)"
    assert third.forbidden == ["shares"]
    assert third.expected_start == NoForecast(f"you may not list {hidden}")
    assert f"  not considered, because you may not list: {hidden}" in list(third.lines(NOON))


async def test_with_fair_shares_those_are_ahead_whose_namespace_holds_less(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await stage.world.client.create(NAMESPACES, {"metadata": {"name": "poor"}})
        await busy(stage, rules=lambda: SchedulingRules(is_fair_share=True))
        late = job("late", Worker=group(2, **{GPU: "1"}))
        late["metadata"]["namespace"] = "poor"
        await stage.world.client.create(TFJOBS, late)
        await stage.world.until(
            lambda: "InsufficientResources" in str(stage.world.objects["tfjobs/poor/late"].get("status"))
        )
        third = await standing(stage, "third")

    assert [str(each.key) for each in third.ahead] == ["poor/late", "default/second"]


async def test_of_a_job_that_a_quota_keeps_small_it_is_told_which_and_who_else_holds_it(tmp_path: Path) -> None:
    """To whoever may look at the jobs of its namespace, and at nothing else."""
    async with a_stage(tmp_path) as stage:
        await stage.node("a", **{GPU: "8"})
        rules = SchedulingRules(queues={"default": QueueRules(quota={GPU: 3000})})
        await start(stage, rules=lambda: rules)
        await stage.submit("other", Worker=group(1, **{GPU: "1"}))
        await stage.until_pods("other-worker-0")
        bounds: dict[str, Any] = {"min-instances": 1, "max-instances": 4}
        await stage.submit("elastic", Worker=group(4, **{GPU: "1"}), **bounds)
        await stage.world.until(lambda: "QueueQuotaExceeded" in str(stage.job("elastic").get("status")))
        reader = RestrictedReader(stage.world.client, {"tfjobs.kubeflow.org": True, "nodes": False, "pods": False})
        job = await find_job(reader, "elastic", "default")
        status = await queue_status(reader, job, stage.world.clock)
        await stage.world.until(lambda: "NotGrown" in str(stage.job("elastic").get("status")))
        found = list(
            explanation_lines(await find_job(reader, "elastic", "default"), NOON, CommandPrefix("tarragon", "default"))
        )

    small = "2 of 4 worker replicas are scheduled: the quota of default is 3 nvidia.com/gpu"
    assert found[0].endswith(f"QueueQuotaExceeded: {small}")
    assert found[1:] == ["  it started with worker 2 (4 requested)"]
    assert list(status.lines(NOON)) == ["  other jobs use the quota of default: other (1 nvidia.com/gpu)"]
    held = [{"name": "other", "holds": {GPU: "1"}}]
    assert status.fields() == {"quota": {"namespace": "default", "heldBy": held}}


async def test_the_start_is_foretold_by_the_quota_of_the_namespace(tmp_path: Path) -> None:
    """A GPU is free all along, but the namespace holds all that it may."""
    async with a_stage(tmp_path) as stage:
        await stage.node("a", **{GPU: "3"})
        rules = SchedulingRules(queues={"default": QueueRules(quota={GPU: 2000})})
        await start(stage, rules=lambda: rules)
        for number in range(6):
            await runs_and_ends(stage, f"train-{number}", [f"train-{each}-worker-0" for each in range(number + 1)])
        for number in (6, 7):
            await stage.submit(f"train-{number}", Worker=group(1, **{GPU: "1"}))
            await stage.until_pods(*(f"train-{each}-worker-0" for each in range(number + 1)))
        await stage.submit("train-8", Worker=group(1, **{GPU: "1"}))
        await waits(stage, "train-8")
        found = await standing(stage, "train-8")

    assert stage.admission("train-8")["wait"]["code"] == "QueueQuotaExceeded"
    held = "train-6 (1 nvidia.com/gpu) and train-7 (1 nvidia.com/gpu)"
    assert f"  other jobs use the quota of default: {held}" in list(found.lines(NOON))
    assert isinstance(found.expected_start, Forecast)
    assert found.expected_start.likely is not None
    began = dt.datetime.fromisoformat(stage.admission("train-6")["admitted"])
    assert 55 <= (found.expected_start.likely - began).total_seconds() <= 65


async def test_a_server_that_fails_in_between_is_told_and_not_waited_for(tmp_path: Path) -> None:
    class Failing(RestrictedReader):
        async def list(self, resource: Resource[Any], selection: Selector = ALL_OBJECTS) -> ObjectList[Any]:
            if resource.full_name == PRIORITY_CLASSES.full_name:
                raise Unavailable({"status": "Failure", "code": 503, "message": "no room for you"})
            return await super().list(resource, selection)

    async with a_stage(tmp_path) as stage:
        await busy(stage)
        reader = Failing(stage.world.client, {})
        with pytest.raises(Unavailable, match="no room for you"):
            async with asyncio.timeout(60):
                await queue_status(reader, await find_job(reader, "third", "default"), stage.world.clock)


async def test_programs_get_the_same_in_fields(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage)
        found = (await standing(stage, "third")).fields()

    assert json.loads(json.dumps(found)) == found
    assert {name: found["wait"][name] for name in ("code", "place", "of", "docs")} == {
        "code": stage.admission("third")["wait"]["code"],
        "place": 2,
        "of": 2,
        "docs": "tarragon docs scheduling#why-a-job-waits",
    }
    assert [each["job"] for each in found["wait"]["ahead"]] == ["tfjob/second"]
    assert found["short"]["helps"] == {"ends": ["first"], "gives": [], "smaller": 0, "back": []}
    assert found["short"]["nodes"][1]["heldBy"][1]["name"] == "pod default/other"
    assert set(found["starts"]) == {"unknown"}


async def test_whoever_may_see_jobs_only_is_told_what_could_not_be_looked_at(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage)
        hidden = {"nodes": False, "pods": True, "tfjobs.kubeflow.org": True}
        third = await standing(stage, "third", hidden)
        lines = list(third.lines(NOON))

    assert third.position_text == ", at position 2 of 2 that you may see"
    assert lines == [
        "  ahead of it: second (2 replicas, 2 GPUs)",
        (
            "  not considered, because you may not list: jobs in other namespaces (the jobs ahead), "
            "nodes (their free resources) and pods in other namespaces (the resources they use)"
        ),
        "  more: tarragon docs scheduling#why-a-job-waits",
    ]


async def test_whoever_may_see_a_single_job_is_told_of_that(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage)
        lines = list((await standing(stage, "third", {"tfjobs.kubeflow.org": False})).lines(NOON))

    assert lines == ["  not considered, because you may not list: jobs in other namespaces (the jobs ahead)"]


async def test_a_selector_that_leaves_nodes_out_and_a_cordon_are_told(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await stage.node("a", **{GPU: "1"})
        await stage.node("b", **{GPU: "4"})
        await stage.world.client.patch(NODES, Key("", "a"), {"metadata": {"labels": {"disk": "ssd"}}})
        stage.start_operator()
        wanted = group(2, **{GPU: "1"})
        wanted["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
        await stage.submit("picky", Worker=wanted)
        await waits(stage, "picky")
        picky = list((await standing(stage, "picky")).lines(NOON))
        await stage.world.client.patch(NODES, Key("", "b"), {"spec": {"unschedulable": True}})
        await stage.submit("large", Worker=group(3, **{GPU: "1"}))
        await waits(stage, "large")
        large = list((await standing(stage, "large")).lines(NOON))

    assert stage.admission("picky")["wait"]["code"] == "NeverFits"
    assert picky[0] == "  1 node does not accept a worker of it: node b: it has no label disk=ssd"
    assert stage.admission("large")["wait"]["code"] == "NodesAway"
    assert "  the job could start now, if 1 worker instead of 3 were enough; or if node b became available" in large


async def test_a_job_that_runs_has_no_place_and_nothing_is_looked_at_for_it(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await busy(stage)
        found = await standing(stage, "first")

    assert list(found.lines(NOON)) == []
    assert found.fields() == {}


async def test_when_it_starts_is_told_from_the_jobs_that_have_ended(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        await stage.node("a", **{GPU: "1"})
        stage.start_operator()
        for number in range(6):
            await runs_and_ends(stage, f"train-{number}", [f"train-{each}-worker-0" for each in range(number + 1)])
        await stage.submit("train-6", Worker=group(1, **{GPU: "1"}))
        await stage.world.until(lambda: "train-6-worker-0" in stage.pods())
        await stage.submit("train-7", Worker=group(1, **{GPU: "1"}))
        await waits(stage, "train-7")
        forecast = (await standing(stage, "train-7")).expected_start

    assert isinstance(forecast, Forecast)
    assert forecast.sample_size == 6
    assert forecast.likely is not None
    began = dt.datetime.fromisoformat(stage.admission("train-6")["admitted"])
    assert 55 <= (forecast.likely - began).total_seconds() <= 65


@pytest.mark.parametrize(
    ("minutes", "words"),
    [
        ((5, 20, 40), "probably starts 12:05 to 12:40, most likely 12:20 (estimated from 37 finished jobs)"),
        (
            (5, 20, None),
            "probably starts after 12:05, most likely 12:20, perhaps much later (estimated from 37 finished jobs)",
        ),
        ((1, 1.25, 6), "probably starts 12:01:00 to 12:06, most likely 12:01:15 (estimated from 37 finished jobs)"),
        ((5, None, None), "probably starts after 12:05, perhaps much later (estimated from 37 finished jobs)"),
        ((5, 20, 780), "probably starts 12:05 to Jan 02 01:00, most likely 12:20 (estimated from 37 finished jobs)"),
    ],
)
def test_the_start_is_told_in_words(minutes: tuple[int, float | None, int | None], words: str) -> None:
    earliest, likely, latest = (None if each is None else NOON + dt.timedelta(minutes=each) for each in minutes)
    assert earliest is not None
    forecast = Forecast(earliest=earliest, likely=likely, latest=latest, sample_size=37)

    assert start_estimate_line(forecast, NOON) == words
    assert start_estimate_fields(forecast)["from"] == 37


def test_what_is_not_known_is_not_made_up() -> None:
    assert (
        start_estimate_line(NoForecast("no job has ended"), NOON)
        == "its start time can't be estimated: no job has ended"
    )
    assert start_estimate_fields(NoForecast("no job has ended")) == {"unknown": "no job has ended"}
