from __future__ import annotations

import asyncio
import datetime as dt
import random
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from tarragon.base.clock import FakeClock
from tarragon.client.errors import ApiError, NotFound
from tarragon.client.informer.informer import Informer
from tarragon.client.middleware.instrumented import InstrumentedClient
from tarragon.client.port import ALL_OBJECTS
from tarragon.client.workqueue import WorkQueue
from tarragon.kube.codec import format_micro_time
from tarragon.kube.core import NODES, PODS
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.operator.metrics.definitions import DEFINITIONS, PHASES, MetricDefinition
from tarragon.operator.metrics.job_metrics import JobMetrics
from tarragon.operator.metrics.registry import Metrics
from tests.frameworks.mpi_jobs import mpijob
from tests.operator.mpi_stage import LAUNCHER, MpiStage
from tests.operator.stage import TFJOBS, Stage, group

REFERENCE = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<type>\w+) \| (?P<labels>[^|]*) \| (?P<text>[^|]+) \|$", re.MULTILINE)


class Measured:
    """An operator that is measured, and what /metrics says of it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.metrics = Metrics(stage.world.clock, "1.2.3")
        self._cluster = InstrumentedClient(stage.world.client, stage.world.clock, self.metrics)

    def start(self) -> None:
        options = OperatorOptions(seed=1, meter=self.metrics)
        self.stage.start(Operator(self._cluster, self.stage.world.clock, options).run())

    def stand_by(self) -> None:
        options = OperatorOptions(seed=1, meter=self.metrics)
        self.stage.start(Operator(self._cluster, self.stage.world.clock, options).run_caches())

    def value(self, name: str, **labels: str) -> float | None:
        for family in text_string_to_metric_families(self.metrics.render().decode()):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return None

    async def until(self, name: str, wanted: float, **labels: str) -> None:
        await self.stage.world.until(lambda: self.value(name, **labels) == wanted)


@pytest.fixture
async def measured(stage: Stage) -> Measured:
    await stage.node("n")
    measured = Measured(stage)
    measured.start()
    return measured


async def test_a_job_is_counted_in_every_phase_that_it_goes_through(measured: Measured) -> None:
    stage = measured.stage
    await stage.submit("a", Worker=group(1))
    await stage.until_pods("a-worker-0")
    await measured.until("tarragon_jobs", 1, kind="TFJob", phase="Starting")
    await stage.all_run("a-worker-0")
    await measured.until("tarragon_jobs", 1, kind="TFJob", phase="Running")
    await stage.plays("a-worker-0", "Succeeded", 0)
    await measured.until("tarragon_jobs", 1, kind="TFJob", phase="Succeeded")

    assert measured.value("tarragon_jobs", kind="TFJob", phase="Running") == 0
    assert measured.value("tarragon_jobs_created_total", kind="TFJob") == 1
    assert measured.value("tarragon_jobs_succeeded_total", kind="TFJob") == 1
    assert measured.value("tarragon_job_queue_seconds_count", kind="TFJob") == 1
    assert measured.value("tarragon_job_start_seconds_count", kind="TFJob") == 1
    assert measured.value("tf_operator_jobs_successful_total") == 1
    assert measured.value("tf_operator_is_leader") == 1


async def test_an_mpijob_is_counted_under_the_names_of_mpi_operator(stage: Stage) -> None:
    mpi, measured = MpiStage(stage), Measured(stage)
    await mpi.install()
    measured.start()
    await mpi.submit(mpijob(workers=None))
    await stage.until_pods(LAUNCHER)
    await mpi.ends(LAUNCHER, 0)

    await measured.until("mpi_operator_jobs_successful_total", 1)
    assert measured.value("mpi_operator_jobs_created_total") == 1
    assert measured.value("mpi_operator_jobs_failed_total") == 0
    assert measured.value("mpi_operator_is_leader") == 1
    assert measured.value("tf_operator_jobs_created_total") == 0


async def test_a_job_that_is_deleted_is_in_no_phase_any_more(measured: Measured) -> None:
    stage = measured.stage
    await stage.submit("a", Worker=group(1))
    await measured.until("tarragon_jobs", 1, kind="TFJob", phase="Starting")
    await stage.world.client.delete(TFJOBS, Key("default", "a"))
    await measured.until("tarragon_jobs_deleted_total", 1, kind="TFJob")

    assert [measured.value("tarragon_jobs", kind="TFJob", phase=phase) for phase in PHASES] == [0] * len(PHASES)


async def test_a_job_that_waits_is_counted_by_the_code_of_its_wait(measured: Measured) -> None:
    await measured.stage.submit("a", Worker=group(1, **{"nvidia.com_gpu": "1"}))
    await measured.until("tarragon_jobs_waiting", 1, kind="TFJob", code="NeverFits")
    await measured.until("tarragon_jobs", 1, kind="TFJob", phase="Waiting")


async def test_the_longest_wait_is_that_of_the_job_that_was_queued_first_and_ends_with_it(stage: Stage) -> None:
    client, clock = stage.world.client, FakeClock()
    jobs = Informer(client, TFJOBS, stage.world.clock, jitter=random.Random(1))
    counted = JobMetrics(clock, CollectorRegistry())
    counted.attach({"TFJob": jobs})
    counted.leadership_changed(True)
    changed = asyncio.Event()
    jobs.add_event_handler(lambda *_: changed.set())
    stage.start(jobs.run())

    def waits() -> dict[str, float]:
        (family,) = [each for each in counted.collect() if each.name == "tarragon_jobs_longest_wait_seconds"]
        return {each.labels["code"]: each.value for each in family.samples if each.value}

    async def until_waits_are(expected: dict[str, float]) -> None:
        async with asyncio.timeout(60):
            while waits() != expected:
                changed.clear()
                await changed.wait()

    for name, seconds in {"first": 100, "second": 10, "forged": None}.items():
        await stage.submit(name, Worker=group(1))
        queued = "yesterday" if seconds is None else format_micro_time(clock.now() - dt.timedelta(seconds=seconds))
        admission = {"queued": queued, "wait": {"code": "NeverFits", "message": "m"}}
        status = {"status": {"tarragon": {"state": "Waiting", "admission": admission}}}
        await client.patch(TFJOBS, Key("default", name), status, subresource="status")
    await until_waits_are({"NeverFits": 100})

    await client.delete(TFJOBS, Key("default", "first"))

    await until_waits_are({"NeverFits": 10})


async def test_what_must_never_happen_is_counted_from_zero_so_that_its_first_time_is_an_increase(
    measured: Measured,
) -> None:
    assert measured.value("tarragon_reconcile_errors_total", kind="TFJob", reason="Bug") == 0
    assert measured.value("tarragon_admission_errors_total", reason="Bug") == 0
    assert measured.value("tarragon_scheduler_refused_decisions_total", decision="policy") == 0


async def test_jobs_are_counted_from_zero_so_that_rules_can_compare_failures_with_no_success(
    measured: Measured,
) -> None:
    values = {
        measured.value(f"tarragon_jobs_{what}_total", kind=kind)
        for what in ("created", "deleted", "succeeded", "failed", "restarted")
        for kind in ("TFJob", "MPIJob", "JAXJob")
    }

    assert values == {0}


async def test_an_operator_is_ready_when_it_has_listed_what_it_needs(measured: Measured) -> None:
    assert measured.value("tarragon_is_ready") == 0

    await measured.stage.submit("a", Worker=group(1))
    await measured.until("tarragon_jobs", 1, kind="TFJob", phase="Starting")

    assert measured.value("tarragon_is_ready") == 1


async def test_a_standby_counts_no_jobs_and_the_leader_counts_them_once(stage: Stage) -> None:
    await stage.node("n")
    leader, standby = Measured(stage), Measured(stage)
    leader.start()
    standby.stand_by()
    await stage.submit("a", Worker=group(1))
    await leader.until("tarragon_jobs", 1, kind="TFJob", phase="Starting")
    await standby.until("tarragon_cache_objects", 1, resource="tfjobs.kubeflow.org")

    assert standby.value("tarragon_is_leader") == 0
    assert standby.value("tarragon_jobs", kind="TFJob", phase="Starting") is None
    assert standby.value("tarragon_jobs_created_total", kind="TFJob") == 0


async def test_calls_are_counted_by_verb_resource_and_code_and_watches_apart(measured: Measured) -> None:
    await measured.stage.submit("a", Worker=group(2))
    await measured.stage.until_pods("a-worker-0", "a-worker-1")
    await measured.until("tarragon_cache_objects", 2, resource="pods")

    def calls(verb: str, resource: str, code: int) -> float | None:
        return measured.value("tarragon_api_call_seconds_count", verb=verb, resource=resource, code=str(code))

    # A watch may tell of a pod before the call that made it has been answered.
    await measured.until("tarragon_api_call_seconds_count", 2, verb="create", resource="pods", code="201")
    await measured.until("tarragon_api_call_seconds_count", 2, verb="create", resource="services", code="201")
    assert calls("list", "pods", 200) == 1
    assert calls("patch", "tfjobs.kubeflow.org/status", 200) is not None
    assert calls("watch", "pods", 200) is None
    assert measured.value("tarragon_watches_started_total", resource="pods") == 1
    assert (measured.value("tarragon_watch_events_total", resource="pods") or 0) >= 2


async def test_a_call_that_fails_is_counted_with_its_code_and_still_fails(stage: Stage) -> None:
    metrics = Metrics(stage.world.clock, "1.2.3")
    cluster = InstrumentedClient(stage.world.client, stage.world.clock, metrics)
    with pytest.raises(NotFound):
        await cluster.get(PODS, Key("default", "none"))
    with pytest.raises(ApiError):
        async for _ in cluster.watch(NODES, ALL_OBJECTS, "no version"):
            pass

    text = metrics.render().decode()
    assert 'tarragon_api_call_seconds_count{code="404",resource="pods",verb="get"} 1.0' in text
    assert re.search(r'tarragon_watches_ended_total{code="4\d\d",resource="nodes"} 1.0', text)


def test_the_queue_tells_what_is_due_and_what_has_failed() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key, at in (("a", 1.0), ("b", 2.0), ("c", 9.0)):
        queue.add(key, at)
    queue.get(5.0)
    queue.requeue("a", 5.0)

    assert queue.count_due(5.0) == 1
    assert queue.count_due(6.0) == 2
    assert queue.count_retrying == 1


def test_the_reference_tells_of_every_metric_and_of_no_other() -> None:
    rows = ROW.finditer(REFERENCE.read_text())

    assert {found["name"]: (found["type"], found["labels"], found["text"]) for found in rows} == {
        scraped(definition): (
            definition.type,
            ", ".join(f"`{label}`" for label in definition.labels) or "-",
            definition.help,
        )
        for definition in DEFINITIONS
    }


async def test_every_definition_is_scraped_and_nothing_else_but_the_process(measured: Measured) -> None:
    families = text_string_to_metric_families(measured.metrics.render().decode())

    assert {family.name for family in families if not family.name.startswith("process_")} == {
        definition.name for definition in DEFINITIONS
    }


def scraped(definition: MetricDefinition) -> str:
    return f"{definition.name}_total" if definition.type == "counter" else definition.name
