"""An admission that the scheduler could never have decided counts for nothing, whoever wrote it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from tarragon.base.resources import CPU
from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.core import NODES, PODS, SERVICES
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.operator.metrics.meter import NoMeter
from tarragon.operator.scheduler.gang_scheduler import GangScheduler
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules
from tests.operator.stage import TFJOBS, Json, Stage, group, job

LONG_AGO = "2026-01-01T00:00:00Z"


def claim(nodes: Mapping[str, str], size: int) -> Json:
    """`nodes`: by node, the indexes of workers."""
    return {"queued": LONG_AGO, "admitted": LONG_AGO, "size": {"Worker": size}, "nodes": {"Worker": dict(nodes)}}


class Counting(NoMeter):
    def __init__(self) -> None:
        self.refused_admissions = 0
        self._reconciles: asyncio.Queue[None] = asyncio.Queue()

    def admission_rejected(self) -> None:
        self.refused_admissions += 1

    def reconcile_finished(self, *_: object) -> None:
        self._reconciles.put_nowait(None)

    async def reconciles(self, count: int) -> None:
        """Wait until so many more reconciles have finished."""
        while not self._reconciles.empty():
            self._reconciles.get_nowait()
        for _ in range(count):
            await self._reconciles.get()


async def forge(stage: Stage, name: str, admission: Json, **tarragon: Any) -> None:
    """By a merge patch of the status, as `kubectl patch --subresource=status` sends it."""
    patch = {"status": {"tarragon": {"admission": admission, **tarragon}}}
    await stage.world.client.patch(TFJOBS, Key("default", name), patch, subresource="status")


async def wait_behind(stage: Stage, name: str, **resources: str) -> None:
    """A job that does not fit: it waits, and has no pod."""
    await stage.submit(name, Worker=group(4, **resources))
    await stage.world.until(lambda: "wait" in stage.admission(name))


def starts(stage: Stage, quota: Mapping[str, int] | None = None, **options: Any) -> None:
    """`quota`, of the namespace, may be changed later."""
    stage.keep(an_operator(stage, quota, **options))


def an_operator(stage: Stage, quota: Mapping[str, int] | None = None, **options: Any) -> asyncio.Task[None]:
    """One that the test may kill."""
    queues = {} if quota is None else {"default": QueueRules(quota=quota)}
    chosen = OperatorOptions(seed=1, rules=lambda: SchedulingRules(queues=queues), **options)
    return asyncio.create_task(Operator(stage.world.client, stage.world.clock, chosen).run())


def condition(stage: Stage, name: str, kind: str) -> Json | None:
    found = (stage.job(name).get("status") or {}).get("conditions") or []
    return next((one for one in found if one["type"] == kind), None)


async def test_a_waiting_job_that_claims_all_nodes_for_itself_starves_nobody(stage: Stage) -> None:
    meter = Counting()
    for node in ("n", "m"):
        await stage.node(node, cpu="8")
    starts(stage, meter=meter)
    await wait_behind(stage, "forged", cpu="16")
    with capture_logs() as lines:
        await forge(stage, "forged", claim({"n": "0-1", "m": "2-3"}, 4))
        await stage.world.until(lambda: condition(stage, "forged", "AdmissionRefused") is not None)
        await stage.submit("honest", Worker=group(2, cpu="8"))
        await stage.until_pods("honest-worker-0", "honest-worker-1")

    said = condition(stage, "forged", "AdmissionRefused")
    assert said is not None
    assert "has no room for worker-0" in said["message"]
    assert "admitted" not in stage.admission("forged")
    assert not any(name.startswith("forged") for name in stage.made())
    assert meter.refused_admissions == 1
    told = [line for line in lines if line["event"] == "an admission was refused"]
    assert [(line["log_level"], line["job"]) for line in told] == [("warning", "forged")]
    assert stage.events("AdmissionRefused") == [said["message"]]


async def test_a_forged_admission_beyond_the_quota_is_decided_anew_within_it(stage: Stage) -> None:
    await stage.node("n", cpu="64")
    starts(stage, {CPU: 8000})
    await stage.submit("first", Worker=group(1, cpu="8"))
    await stage.until_pods("first-worker-0")
    await wait_behind(stage, "forged", cpu="8")

    await forge(stage, "forged", claim({"n": "0-3"}, 4))
    await stage.world.until(lambda: condition(stage, "forged", "AdmissionRefused") is not None)

    await stage.world.until(lambda: stage.admission("forged").get("wait", {}).get("code") == "QueueQuotaExceeded")
    assert not any(name.startswith("forged") for name in stage.made())


async def test_a_running_job_that_claims_more_keeps_what_it_has_and_gets_no_more(stage: Stage) -> None:
    await stage.node("n", cpu="2")
    await stage.node("m", cpu="2")
    starts(stage, {CPU: 4000})
    await stage.submit("other", Worker=group(1, cpu="2"))
    await stage.until_pods("other-worker-0")
    bounds: dict[str, Any] = {"min-instances": 1, "max-instances": 4}
    await stage.submit("grows", Worker=group(1, cpu="2"), **bounds)
    await stage.until_pods("grows-worker-0", "other-worker-0")
    before = stage.admission("grows")

    await forge(stage, "grows", claim({"n": "0-1", "m": "2-3"}, 4))
    await stage.world.until(lambda: condition(stage, "grows", "AdmissionRefused") is not None)

    after = stage.admission("grows")
    assert {field: after[field] for field in before} == before
    assert sorted(stage.made()) == ["grows-worker-0", "other-worker-0"]


async def test_nodes_that_do_not_exist_are_no_way_past_the_queue(stage: Stage) -> None:
    await stage.node("n", cpu="8")
    starts(stage)
    await stage.submit("first", Worker=group(1, cpu="8"))
    await stage.until_pods("first-worker-0")
    await stage.submit("second", Worker=group(1, cpu="8"))
    await stage.world.until(lambda: "wait" in stage.admission("second"))
    await stage.submit("zulu", Worker=group(1, cpu="8"))
    await stage.world.until(lambda: "wait" in stage.admission("zulu"))

    await forge(stage, "zulu", claim({"ghost": "0"}, 1))
    await stage.world.until(lambda: condition(stage, "zulu", "AdmissionRefused") is not None)
    await stage.plays("first-worker-0", "Succeeded", 0)

    await stage.world.until(lambda: "second-worker-0" in stage.pods())
    assert "admitted" not in stage.admission("zulu")


async def test_a_queue_time_before_the_job_was_there_is_no_way_past_the_queue(stage: Stage) -> None:
    await stage.node("n", cpu="8")
    starts(stage)
    for name in ("first", "second"):
        await stage.submit(name, Worker=group(1, cpu="8"))
        await stage.world.until(lambda name=name: bool(stage.admission(name)))  # type: ignore[misc]
    await stage.submit("zulu", Worker=group(1, cpu="8"))
    await stage.world.until(lambda: "wait" in stage.admission("zulu"))

    await forge(stage, "zulu", {"queued": "2001-01-01T00:00:00Z"})
    await stage.plays("first-worker-0", "Succeeded", 0)

    await stage.world.until(lambda: "second-worker-0" in stage.pods())
    assert "admitted" not in stage.admission("zulu")


async def test_an_operator_that_starts_believes_no_forged_admission_either(stage: Stage) -> None:
    await stage.node("n", cpu="8")
    body = job("forged", Worker=group(4, cpu="16"))
    body["metadata"]["annotations"] = {GENERATION_ANNOTATION: "kubeflow.org/v1"}
    await stage.world.client.create(TFJOBS, body)
    await forge(stage, "forged", claim({"n": "0-3"}, 4))

    starts(stage)
    await stage.submit("honest", Worker=group(1, cpu="8"))
    await stage.until_pods("honest-worker-0")
    await stage.world.until(lambda: condition(stage, "forged", "AdmissionRefused") is not None)

    assert stage.made() == ["honest-worker-0"]


async def test_what_somebody_admits_by_hand_counts_where_the_scheduler_could_have_done_it(stage: Stage) -> None:
    await stage.node("n", cpu="8")
    await stage.node("m", cpu="8")
    starts(stage, {CPU: 8000})
    await stage.submit("first", Worker=group(1, cpu="8"))
    await stage.until_pods("first-worker-0")
    await wait_behind(stage, "mended", cpu="2")
    await stage.plays("first-worker-0", "Succeeded", 0)
    await stage.world.until(lambda: "mended-worker-3" in stage.pods())

    admission = stage.admission("mended")
    (node,) = admission["nodes"]["Worker"]
    other = {"n": "m", "m": "n"}[node]
    await forge(stage, "mended", {"nodes": {"Worker": {node: "0-2", other: "3"}}})
    await stage.world.until(
        lambda: stage.pods().get("mended-worker-3", {}).get("metadata", {}).get("deletionTimestamp") is not None
    )
    await stage.end_pods()
    await stage.world.until(lambda: stage.pods().get("mended-worker-3", {}).get("spec", {}).get("nodeName") == other)

    assert condition(stage, "mended", "AdmissionRefused") is None


async def test_a_restart_takes_nothing_from_a_job_whose_pods_are_there(stage: Stage) -> None:
    """Though its node has shrunk, its quota is lower, and a place of its is on a node that is gone."""
    for node in ("n", "m"):
        await stage.node(node, cpu="4")
    quota = {CPU: 8000}
    operator = an_operator(stage, quota)
    await stage.submit("runs", Worker=group(4, cpu="2", policy="OnFailure"))
    names = [f"runs-worker-{index}" for index in range(4)]
    await stage.until_pods(*names)
    await stage.all_run(*names)
    await stage.until_state("runs", "Running")
    before = stage.admission("runs")
    await stage.kill(operator)
    quota[CPU] = 1000
    uids = {name: pod["metadata"]["uid"] for name, pod in stage.pods().items()}
    amounts = {"allocatable": {"cpu": "1", "memory": "16Gi", "pods": "110"}}
    for node in ("n", "m"):
        await stage.world.client.patch(NODES, Key("", node), {"status": amounts}, subresource="status")
    await stage.world.delete(PODS, "runs-worker-3")
    await stage.end_pods()

    starts(stage, quota)
    await stage.world.until(lambda: "runs-worker-3" in stage.pods())

    assert {name: pod["metadata"]["uid"] for name, pod in stage.pods().items() if name != "runs-worker-3"} == {
        name: uid for name, uid in uids.items() if name != "runs-worker-3"
    }
    assert stage.admission("runs") == before
    assert condition(stage, "runs", "AdmissionRefused") is None


@pytest.mark.parametrize("beside", [{}, {"Worker": {"n": "0"}}], ids=["alone", "beside workers"])
async def test_a_claim_for_a_replica_type_that_the_job_does_not_have_holds_nothing(
    stage: Stage, beside: Mapping[str, Mapping[str, str]]
) -> None:
    await stage.node("n", cpu="8")
    starts(stage)
    await wait_behind(stage, "forged", cpu="16")
    nodes = {"Clown": {"n": "0-3"}, **beside}
    sizes = {"Clown": 4, **dict.fromkeys(beside, 1)}

    await forge(stage, "forged", {"queued": LONG_AGO, "admitted": LONG_AGO, "size": sizes, "nodes": nodes})
    await stage.submit("honest", Worker=group(1, cpu="8"))

    await stage.until_pods("honest-worker-0")
    await stage.world.until(lambda: "wait" in stage.admission("forged"))
    assert not any(name.startswith("forged") for name in stage.made())


class Cycles:
    """The scheduler's cycles, which a test may hold up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_run, self._has_read_all = asyncio.Event(), asyncio.Event()
        self.may_run.set()
        run_cycle = GangScheduler.run_cycle

        async def run_cycle_when_it_may(scheduler: GangScheduler) -> float | None:
            await self.may_run.wait()
            pause = await run_cycle(scheduler)
            if not scheduler.pending_changes:
                self._has_read_all.set()
            return pause

        monkeypatch.setattr(GangScheduler, "run_cycle", run_cycle_when_it_may)

    async def after(self, change: Coroutine[None, None, None]) -> None:
        """Make the change, which causes a cycle, and wait until one has left nothing unread."""
        self._has_read_all.clear()
        await change
        await self._has_read_all.wait()


async def test_a_forged_admission_of_a_job_that_another_operator_gives_back_is_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the scheduler has read it before, and the reconciler is the faster one afterwards."""
    cycles = Cycles(monkeypatch)
    await stage.node("n", cpu="64")
    meter = Counting()
    rules = SchedulingRules(queues={"default": QueueRules(quota={CPU: 2000})})
    settings = OperatorSettings(other_managers={"TFJob": "another operator"})
    options = OperatorOptions(seed=1, settings=settings, rules=lambda: rules, meter=meter)
    operator = Operator(stage.world.client, stage.world.clock, options)
    stage.keep(asyncio.create_task(operator.run()))
    await stage.submit("forged", Worker=group(4, cpu="8"))
    await stage.world.until(lambda: bool(stage.events("LeftToOtherOperator")))
    await forge(stage, "forged", claim({"n": "0-3"}, 4))
    await stage.submit("next", Worker=group(1, cpu="1"))  # until it is seen, so is the forged admission
    await stage.world.until(lambda: len(stage.events("LeftToOtherOperator")) == 2)
    await cycles.after(stage.submit("last", Worker=group(1, cpu="1")))

    cycles.may_run.clear()
    operator.leave_kinds_to({})
    await meter.reconciles(3)
    cycles.may_run.set()

    await stage.world.until(lambda: condition(stage, "forged", "AdmissionRefused") is not None)
    await stage.until_pods("next-worker-0", "last-worker-0")
    made = [*stage.made(), *(each.metadata.name for each in (await stage.world.client.list(SERVICES)).items)]
    assert not any(name.startswith("forged") for name in made)
