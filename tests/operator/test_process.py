from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from tarragon.base.clock import FakeClock, SystemClock
from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.jobs import find_job
from tarragon.cli.jobview.rows import reason
from tarragon.client.errors import ApiError, Forbidden, Unauthorized, unavailable
from tarragon.client.leader_election import TYPED_LEASES, LeaderElectionConfig, LeaseLock
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import ALL_OBJECTS, Client, Selector
from tarragon.kube.codec import format_micro_time
from tarragon.kube.core import LEASES, NAMESPACES, PODS
from tarragon.kube.meta import Key
from tarragon.operator.manager.health import HttpResponse, ListenAddress, probe_response, serving
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.operator.manager.process import ClusterClients, Process
from tarragon.operator.manager.settings import ProcessSettings
from tarragon.operator.reconciler.watchdog import MAX_WORK_SECONDS, Watchdog
from tests.localcluster.controllers.world import PATIENCE
from tests.operator.stage import TFJOBS, Stage, group

KEY = Key("default", "tarragon")
TERMS = LeaderElectionConfig(lease_duration=9.0, renew_deadline=6.0, retry_period=0.2)
OTHERS = "1ca428e5.training-operator.kubeflow.org"


STUCK = """
import asyncio, time
from tarragon.operator.manager.process import stop_on_signal

async def main():
    with stop_on_signal():
        print("begun", flush=True)
        while True:
            time.sleep(0.05)  # a signal that comes just before a sleep is heard after it

asyncio.run(main())
"""
"""Its event loop hears nothing any more, so whatever the first signal begins has not ended when the second comes."""

ONE_DURING_THE_OTHER = """
import asyncio, signal, sys, time
from tarragon.operator.manager.process import stop_on_signal

def interrupt(frame, event, _):
    if event == "call" and frame.f_code.co_name == "stop_or_exit":
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)

async def main():
    with stop_on_signal():
        sys.setprofile(interrupt)
        signal.raise_signal(signal.SIGTERM)
        time.sleep(60)

asyncio.run(main())
"""
"""SIGINT arrives when the handler of SIGTERM has been called, before the first line of the handler.

The process sends both signals to itself: a signal from outside may arrive while `interrupt` runs, and Python profiles
no handler that is called there.
"""


class JumpingClock(SystemClock):
    """Its monotonic time jumps when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.jumped


class Slow(DelegatingClient):
    """An API in front of which pods wait to be made until a test lets them."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.waiting = 0
        self.arrived = asyncio.Event()
        self.open = asyncio.Event()

    async def create(self, resource: Any, body: Any) -> Any:
        if resource.plural == PODS.plural:
            self.arrived.set()
            await self.open.wait()
        return await super().create(resource, body)


class WithoutPods(DelegatingClient):
    """An API that lets nobody list pods."""

    async def list(self, resource: Any, selection: Selector = ALL_OBJECTS) -> Any:
        if resource.plural == PODS.plural:
            raise Forbidden({"code": 403, "reason": "Forbidden", "message": "pods are forbidden"})
        return await super().list(resource, selection)


class Leases(DelegatingClient):
    """An API that answers whoever reads a Lease as a test says."""

    def __init__(self, client: Client, error: ApiError | None = None) -> None:
        super().__init__(client)
        self.error = error
        self.open = asyncio.Event()
        self.open.set()
        self.reads = 0

    async def get(self, resource: Any, key: Key) -> Any:
        self.reads += 1
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return await super().get(resource, key)


class Running:
    def __init__(self, process: Process) -> None:
        self.process = process
        self.stopping = asyncio.Event()
        self.task = asyncio.create_task(process.run(self.stopping))

    @property
    def leads(self) -> bool:
        return self.process.lease is not None and self.process.lease.is_leader

    def asks(self, path: str) -> HttpResponse:
        return self.process.routes[path]()

    async def ends(self) -> None:
        self.stopping.set()
        async with asyncio.timeout(60):
            await self.task


@asynccontextmanager
async def a_process(
    stage: Stage, name: str, cluster: Any = None, election: Client | None = None, **changes: Any
) -> AsyncIterator[Running]:
    lock = LeaseLock(key=KEY, identity=name, config=TERMS)
    settings = replace(ProcessSettings(options=OperatorOptions(seed=1), lease_claim=lock), **changes)
    doors = ClusterClients(operator=cluster or stage.world.client, leader_election=election or stage.world.client)
    running = Running(Process(doors, stage.world.clock, settings))
    try:
        yield running
    finally:
        running.task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ExceptionGroup):
            await running.task


@pytest.fixture
async def stage(stage: Stage) -> Stage:
    await stage.world.follow(LEASES)
    await stage.node("n")
    return stage


def holder(stage: Stage) -> str:
    lease = stage.world.objects.get(f"leases/{KEY}", {})
    return str(lease.get("spec", {}).get("holderIdentity", ""))


async def until(stage: Stage, claim: Callable[[], bool]) -> None:
    """Of what no watch tells: what a process says of itself."""
    async with asyncio.timeout(60):
        while not claim():
            await stage.world.clock.sleep(0.01)


async def test_a_standby_is_ready_and_does_nothing_until_the_leader_ends_and_then_goes_on_at_once(stage: Stage) -> None:
    # It would run out after all patience.
    long = replace(TERMS, lease_duration=2 * PATIENCE, renew_deadline=1.5 * PATIENCE)
    locks = {name: LeaseLock(key=KEY, identity=name, config=long) for name in "ab"}
    async with a_process(stage, "a", lease_claim=locks["a"]) as a:
        await stage.world.until(lambda: holder(stage) == "a")
        async with a_process(stage, "b", lease_claim=locks["b"]) as b:
            await until(stage, lambda: b.asks("/readyz").status == 200)
            await stage.submit("j", Worker=group(2))
            await stage.until_pods("j-worker-0", "j-worker-1")
            uids = {name: pod["metadata"]["uid"] for name, pod in stage.pods().items()}
            assert not b.leads

            await a.ends()
            await stage.world.until(lambda: holder(stage) == "b")
            await stage.all_run("j-worker-0", "j-worker-1")
            await stage.until_state("j", "Running")
            assert {name: pod["metadata"]["uid"] for name, pod in stage.pods().items()} == uids
            transitions = (await stage.world.client.get(TYPED_LEASES, KEY)).spec.lease_transitions
            assert transitions == 1


async def test_what_is_being_written_is_finished_before_the_lease_is_given_back(stage: Stage) -> None:
    slow = Slow(stage.world.client)
    async with a_process(stage, "a", slow) as a:
        await stage.submit("j", Worker=group(1))
        await slow.arrived.wait()
        a.stopping.set()
        await until(stage, lambda: a.asks("/readyz").body == b"stopping\n")
        assert holder(stage) == "a"
        assert not a.task.done()

        slow.open.set()
        await a.ends()
        assert set(stage.pods()) == {"j-worker-0"}
        await stage.world.until(lambda: holder(stage) == "")


async def test_a_write_that_never_ends_does_not_keep_a_process_from_ending(stage: Stage) -> None:
    slow = Slow(stage.world.client)
    async with a_process(stage, "a", slow, shutdown_seconds=0.1) as a:
        await stage.submit("j", Worker=group(1))
        await slow.arrived.wait()

        await a.ends()
        await stage.world.until(lambda: holder(stage) == "")


async def test_it_can_end_before_it_ever_began(stage: Stage) -> None:
    async with a_process(stage, "a", WithoutPods(stage.world.client)) as a:
        await until(stage, lambda: a.asks("/readyz") == HttpResponse(503, b"pods: not listed yet\n"))
        assert a.asks("/healthz") == HttpResponse(200, b"ok\n")

        await a.ends()
        assert holder(stage) == ""


async def test_alone_on_a_cluster_it_can_end_before_it_ever_began(stage: Stage) -> None:
    async with a_process(stage, "a", WithoutPods(stage.world.client), lease_claim=None, shutdown_seconds=600) as a:
        await until(stage, lambda: a.asks("/readyz") == HttpResponse(503, b"pods: not listed yet\n"))
        await a.ends()


async def test_alone_on_a_cluster_it_needs_no_lease(stage: Stage) -> None:
    async with a_process(stage, "a", lease_claim=None) as a:
        await stage.submit("j", Worker=group(1))
        await stage.until_pods("j-worker-0")
        await a.ends()
        assert holder(stage) == ""


async def test_who_cannot_see_pods_does_not_lead(stage: Stage) -> None:
    async with a_process(stage, "blind", WithoutPods(stage.world.client)) as blind, a_process(stage, "b"):
        await stage.world.until(lambda: holder(stage) == "b")
        assert not blind.leads


async def test_one_whose_namespace_does_not_exist_is_not_ready_says_why_and_leads_once_it_does(stage: Stage) -> None:
    lock = LeaseLock(key=Key("nowhere", "tarragon"), identity="a", config=TERMS)
    with capture_logs() as lines:
        async with a_process(stage, "a", lease_claim=lock) as a:
            await until(stage, lambda: b"cannot lead" in a.asks("/readyz").body)
            told = a.asks("/readyz")
            assert a.asks("/healthz") == HttpResponse(200, b"ok\n")

            await stage.world.client.create(NAMESPACES, {"metadata": {"name": "nowhere"}})
            await until(stage, lambda: a.leads and a.asks("/readyz") == HttpResponse(200, b"ok\n"))

    assert told == HttpResponse(503, b'cannot lead: namespaces "nowhere" not found\n')
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert line["event"] == "cannot lead: the namespace of the Lease does not exist"
    assert (line["lease"], line["why"]) == ("nowhere/tarragon", 'namespaces "nowhere" not found')
    assert "MY_POD_NAMESPACE" in line["remedy"]


async def test_one_that_may_not_read_its_lease_is_not_ready_until_it_may(stage: Stage) -> None:
    leases = Leases(stage.world.client, Forbidden({"code": 403, "reason": "Forbidden", "message": "not for you"}))
    with capture_logs() as lines:
        async with a_process(stage, "a", election=leases) as a:
            await until(stage, lambda: a.asks("/readyz") == HttpResponse(503, b"cannot lead: not for you\n"))

            leases.error = None
            await until(stage, lambda: a.leads and a.asks("/readyz").status == 200)

    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["cannot lead: the Lease is forbidden"]


async def test_one_is_not_ready_before_it_knows_that_it_may_lead(stage: Stage) -> None:
    leases = Leases(stage.world.client)
    leases.open.clear()
    async with a_process(stage, "a", election=leases) as a:
        await until(stage, lambda: leases.reads > 0)
        assert a.asks("/readyz") == HttpResponse(503, b"the Lease default/tarragon has not been read yet\n")

        leases.open.set()
        await until(stage, lambda: a.asks("/readyz").status == 200)


@pytest.mark.parametrize("others", [unavailable("etcd is down"), Unauthorized({"code": 401, "message": "who?"})])
async def test_a_standby_stays_ready_while_the_api_does_not_answer(stage: Stage, others: ApiError) -> None:
    leases = Leases(stage.world.client)
    async with a_process(stage, "a") as a, a_process(stage, "b", election=leases) as b:
        await stage.world.until(lambda: holder(stage) == "a")
        await until(stage, lambda: b.asks("/readyz").status == 200)

        leases.error = others
        before = leases.reads
        await until(stage, lambda: leases.reads > before + 2)
        assert b.asks("/readyz").status == 200
        assert a.leads


async def test_a_lease_that_somebody_takes_away_ends_the_process(stage: Stage) -> None:
    async with a_process(stage, "a") as a:
        await stage.world.until(lambda: holder(stage) == "a")
        await stage.world.client.patch(TYPED_LEASES, KEY, {"spec": {"holderIdentity": "b"}})
        async with asyncio.timeout(60):
            with pytest.raises(ExceptionGroup):
                await a.task
        assert holder(stage) == "b"


async def test_a_job_that_another_operator_keeps_is_left_alone_until_it_is_given_to_us(stage: Stage) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": OTHERS, "namespace": "default"},
        "spec": {"holderIdentity": "theirs", "renewTime": format_micro_time(stage.world.clock.now())},
    }
    await stage.world.client.create(LEASES, lease)
    await stage.submit("j", Worker=group(1))
    before = stage.job("j")
    async with a_process(stage, "a"):
        await stage.world.until(lambda: len(stage.events("LeftToOtherOperator")) == 1)
        assert stage.job("j") == before
        shown = await find_job(stage.world.client, "j", "default")
        assert reason(shown) == stage.events("LeftToOtherOperator")[0]

        await stage.world.client.patch(
            TFJOBS, Key("default", "j"), {"metadata": {"annotations": {"tarragon.dev/adopt": "true"}}}
        )
        await stage.until_pods("j-worker-0")
        assert stage.job("j")["status"]["tarragon"]["generation"] == "kubeflow.org/v1"


async def test_an_operator_that_is_told_to_adopt_keeps_all_jobs(stage: Stage) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": OTHERS, "namespace": "default"},
        "spec": {"holderIdentity": "theirs", "renewTime": format_micro_time(stage.world.clock.now())},
    }
    await stage.world.client.create(LEASES, lease)
    await stage.submit("j", Worker=group(1))
    async with a_process(stage, "a", adopt=True):
        await stage.until_pods("j-worker-0")


async def test_a_reconcile_that_hangs_is_seen_from_outside(stage: Stage) -> None:
    slow, clock = Slow(stage.world.client), JumpingClock()
    operator = Operator(slow, clock, OperatorOptions(seed=1))
    stage.start(operator.run())
    await stage.submit("j", Worker=group(1))
    await slow.arrived.wait()
    assert operator.restart_reasons == []

    clock.jumped = MAX_WORK_SECONDS + 1
    (stuck,) = operator.restart_reasons
    assert stuck.startswith("reconcile of TFJob default/j: running for 60")


def test_a_queue_that_nobody_takes_from_is_seen_from_outside() -> None:
    clock = FakeClock()
    watchdog = Watchdog(clock)
    clock.advance(1000)
    watchdog.start()
    clock.advance(50)
    assert watchdog.idle_seconds(None) == 0
    assert watchdog.idle_seconds(due=1060) == 0
    assert watchdog.idle_seconds(due=1040) == 10
    assert watchdog.idle_seconds(due=3) == 50  # What was due before we led was others' to take.

    with watchdog.track("one"):
        assert watchdog.in_progress == 1
        assert watchdog.idle_seconds(due=3) == 0
    assert watchdog.in_progress == 0
    assert list(watchdog.overdue()) == []


async def test_it_answers_over_http_where_it_was_told_to(stage: Stage) -> None:
    routes = {
        "/healthz": lambda: probe_response([], 500),
        "/readyz": lambda: probe_response(["pods: not listed yet"], 503),
    }
    async with serving(ListenAddress("127.0.0.1", 0), routes) as address, aiohttp.ClientSession() as session:
        async with session.get(f"http://{address}/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        async with session.get(f"http://{address}/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "pods: not listed yet\n")
        async with session.get(f"http://{address}/") as answer:
            assert answer.status == 404

        with pytest.raises(TarragonError, match=f"cannot listen on {address}"):
            async with serving(address, routes):
                raise AssertionError


async def test_a_second_signal_ends_it_at_once_although_the_first_is_still_being_handled() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", ONE_DURING_THE_OTHER)
    try:
        async with asyncio.timeout(50):
            assert await process.wait() in {128 + signal.SIGTERM, 128 + signal.SIGINT}
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def test_a_second_signal_ends_it_at_once_even_where_the_loop_is_stuck() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", STUCK, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)

        assert await process.wait() in {128 + signal.SIGTERM, 128 + signal.SIGINT}
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
