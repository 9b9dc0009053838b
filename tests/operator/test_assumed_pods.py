"""Pods that the server was asked to make and has not answered for, while the scheduler thinks better of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from bench.support.dict_cluster import DictCluster, a_job, a_node, a_pod
from tarragon.base.clock import Clock, FakeClock
from tarragon.client.errors import AlreadyExists, ApiError, Unavailable, error_from_status, unavailable
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import Client
from tarragon.kube.core import NODES, PODS
from tarragon.kube.meta import Key
from tarragon.operator.informers.assumed_pods import ASSUMED_SECONDS
from tarragon.operator.manager.operator import CYCLE_SPACING, Operator, OperatorOptions
from tarragon.operator.scheduler.gang_scheduler import GangScheduler
from tarragon.scheduling.policies import POLICIES
from tests.operator.stage import TFJOBS, Stage, group, job
from tests.operator.test_dragon import Jumping
from tests.operator.test_moves import refuse, restarts
from tests.operator.test_pod_affinity_index import nodes, rule, wait, workers


class SlowToMake(DelegatingClient):
    """An API that gets requests for some pods only when the test lets them through."""

    def __init__(self, client: Client, *pods: str) -> None:
        super().__init__(client)
        self._held = frozenset(pods)
        self._lost: list[tuple[Any, Any]] = []
        self.error: ApiError | None = None
        """What they get instead of being let through."""
        self.asked = asyncio.Event()
        self.let_through = asyncio.Event()
        self.failed = asyncio.Event()

    async def create(self, resource: Any, body: Any) -> Any:
        name = body["metadata"].get("name", "")
        if resource.plural == "pods" and name in self._held:
            self.asked.set()
            lost = resource, body
            self._lost.append(lost)
            await self.let_through.wait()
            if self.error is not None:
                self.failed.set()
                raise self.error
            self._lost.remove(lost)
        return await super().create(resource, body)

    async def carry_out(self) -> None:
        """After all, what it gave no answer to."""
        for resource, body in self._lost:
            await super().create(resource, body)


async def slow(stage: Stage, workers: int, *held: str, clock: Clock | None = None) -> SlowToMake:
    """Job a has been promised its places; some of its pods are under way."""
    cluster = SlowToMake(stage.world.client, *held)
    stage.start(Operator(cluster, clock or stage.world.clock, OperatorOptions(seed=1)).run())
    bounds: dict[str, Any] = {"min-instances": 1, "max-instances": workers}
    await stage.submit("a", Worker=group(workers, cpu="1"), **bounds)
    await cluster.asked.wait()
    return cluster


async def wish(stage: Stage, workers: int) -> None:
    patch = {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": workers}}}}
    await stage.world.client.patch(TFJOBS, Key("default", "a"), patch)
    await stage.world.until(lambda: stage.admission("a")["size"]["Worker"] == workers)


async def test_a_place_is_nobody_elses_while_a_pod_for_it_is_under_way(stage: Stage) -> None:
    await stage.node("n", cpu="2")
    cluster = await slow(stage, 2, "a-worker-1")
    await wish(stage, 1)

    await stage.submit("b", Worker=group(1, cpu="1"))
    await stage.world.until(lambda: bool(stage.admission("b").get("wait")))
    assert stage.admission("b")["wait"]["code"] == "ResourcesReleasing"
    cluster.let_through.set()
    await stage.world.until(lambda: "deletionTimestamp" in stage.pods().get("a-worker-1", {"metadata": {}})["metadata"])
    assert "b-worker-0" not in stage.pods()

    await stage.end_pods()
    await stage.until_pods("a-worker-0", "b-worker-0")
    assert stage.made() == ["a-worker-0", "a-worker-1", "b-worker-0"]


async def b_waits(stage: Stage) -> None:
    """So that no round is under way for its sake any more."""
    await stage.submit("b", Worker=group(1, cpu="1"))
    await stage.until_state("b", "Waiting")
    await stage.world.until(lambda: bool(stage.events("ResourcesReleasing")))
    await stage.world.clock.sleep(5 * CYCLE_SPACING)


@pytest.mark.parametrize(
    ("code", "message"), [(403, "exceeded quota: pods"), (500, 'failed calling webhook "dead.example.org"')]
)
async def test_a_place_is_free_again_when_the_pod_for_it_is_refused(stage: Stage, code: int, message: str) -> None:
    await stage.node("n", cpu="1")
    cluster = await slow(stage, 1, "a-worker-0")
    await stage.world.client.delete(TFJOBS, Key("default", "a"))
    await b_waits(stage)

    cluster.error = error_from_status({"code": code, "message": message})
    cluster.let_through.set()
    await stage.until_pods("b-worker-0")


async def test_a_pod_of_which_the_server_has_said_nothing_may_come_later(stage: Stage) -> None:
    await stage.node("n", cpu="2")
    cluster = await slow(stage, 2, "a-worker-1")
    await wish(stage, 1)
    await b_waits(stage)

    cluster.error = unavailable("the connection was lost")
    cluster.let_through.set()
    await stage.world.until(lambda: "a-worker-0" in stage.pods())
    await cluster.failed.wait()
    await stage.world.clock.sleep(5 * CYCLE_SPACING)
    await cluster.carry_out()
    await stage.world.until(lambda: "deletionTimestamp" in stage.pods()["a-worker-1"]["metadata"])
    await stage.end_pods()
    await stage.until_pods("a-worker-0", "b-worker-0")
    assert stage.made() == ["a-worker-0", "a-worker-1", "b-worker-0"]


def test_a_pod_that_has_come_before_its_request_failed_is_not_waited_for() -> None:
    shelves = DictCluster(FakeClock())
    world = shelves.new_informers()
    shelves.put(NODES, a_node("n"))
    shelves.put(TFJOBS, a_job("a", workers=1))
    pod = a_pod(shelves.objects[TFJOBS.plural, Key("default", "a")], "worker-0", "n")
    with capture_logs() as lines, suppress(Unavailable), world.assumed_pods.assume(pod):
        shelves.put(PODS, pod)
        raise unavailable("the connection was lost")

    assert not world.assumed_pods.pods_of(("TFJob", Key("default", "a")))
    assert not lines


def test_that_pods_may_still_come_is_told_once_a_job_and_that_one_has_not_of_each() -> None:
    clock = FakeClock()
    shelves = DictCluster(clock)
    world = shelves.new_informers()
    shelves.put(TFJOBS, a_job("a", workers=2))
    job = shelves.objects[TFJOBS.plural, Key("default", "a")]
    with capture_logs() as lines:
        for replica in ("worker-0", "worker-1"):
            with suppress(Unavailable), world.assumed_pods.assume(a_pod(job, replica, "n")):
                raise unavailable("the connection was lost")
        clock.advance(ASSUMED_SECONDS)
        world.assumed_pods.drop_expired()

    told = [(line["event"].partition(":")[0], line["pod"], line["node"]) for line in lines]
    assert told == [
        ("no answer", "a-worker-0", "n"),
        ("the pod did not appear", "a-worker-0", "n"),
        ("the pod did not appear", "a-worker-1", "n"),
    ]


def test_that_there_is_a_pod_which_is_not_shown_yet_is_an_answer() -> None:
    """It may be ours, of a request that was sent twice, or a stranger's."""
    shelves = DictCluster(FakeClock())
    world = shelves.new_informers()
    shelves.put(TFJOBS, a_job("a", workers=1))
    pod = a_pod(shelves.objects[TFJOBS.plural, Key("default", "a")], "worker-0", "n")
    with capture_logs() as lines, suppress(AlreadyExists), world.assumed_pods.assume(pod):
        raise error_from_status({"code": 409, "reason": "AlreadyExists", "message": "a-worker-0 is there"})

    assert world.assumed_pods.pods_of(("TFJob", Key("default", "a"))), "its place is kept"
    assert not lines


async def test_who_places_nothing_any_more_does_not_wait_for_ever_for_a_pod_that_did_not_come() -> None:
    """One round came after the other, fifty a second."""
    clock = FakeClock()
    shelves = DictCluster(clock)
    world = shelves.new_informers()
    world.settings = replace(world.settings, namespaces=("default",))
    admitter = GangScheduler(shelves, clock, world, POLICIES["fifo"])  # type: ignore[arg-type]
    shelves.put(TFJOBS, a_job("a", workers=1))
    pod = a_pod(shelves.objects[TFJOBS.plural, Key("default", "a")], "worker-0", "n")
    shelves.remove(TFJOBS, Key("default", "a"))
    with suppress(Unavailable), world.assumed_pods.assume(pod):
        raise unavailable("the connection was lost")

    assert await admitter.run_cycle() == ASSUMED_SECONDS
    clock.advance(ASSUMED_SECONDS)
    assert await admitter.run_cycle() is None


def test_a_pod_that_is_refused_now_may_still_come_of_a_request_before() -> None:
    """A quota counts the first request already, and refuses the second one for it."""
    clock = FakeClock()
    shelves = DictCluster(clock)
    world = shelves.new_informers()
    shelves.put(TFJOBS, a_job("a", workers=1))
    pod = a_pod(shelves.objects[TFJOBS.plural, Key("default", "a")], "worker-0", "n")
    name = "TFJob", Key("default", "a")
    with suppress(Unavailable), world.assumed_pods.assume(pod):
        raise unavailable("the connection was lost")
    for _ in range(3):
        clock.advance(ASSUMED_SECONDS / 4)
        with suppress(ApiError), world.assumed_pods.assume(pod):
            raise error_from_status({"code": 403, "message": "exceeded quota: pods"})

    world.assumed_pods.drop_expired()
    assert world.assumed_pods.pods_of(name)
    clock.advance(ASSUMED_SECONDS / 4)
    world.assumed_pods.drop_expired()
    assert not world.assumed_pods.pods_of(name)


def test_of_a_pod_that_kube_scheduler_places_no_place_is_kept() -> None:
    shelves = DictCluster(FakeClock())
    world = shelves.new_informers()
    shelves.put(TFJOBS, a_job("a", workers=1))
    pod = a_pod(shelves.objects[TFJOBS.plural, Key("default", "a")], "worker-0", "")
    with capture_logs() as lines, suppress(Unavailable), world.assumed_pods.assume(pod):
        raise unavailable("the connection was lost")

    assert not world.assumed_pods.pods_of(("TFJob", Key("default", "a")))
    assert not lines


async def test_a_pod_of_which_the_server_has_said_nothing_for_a_minute_does_not_come_any_more(stage: Stage) -> None:
    await stage.node("n", cpu="2")
    clock = Jumping()
    cluster = await slow(stage, 2, "a-worker-1", clock=clock)
    await wish(stage, 1)
    await b_waits(stage)

    cluster.error = unavailable("the connection was lost")
    cluster.let_through.set()
    await cluster.failed.wait()
    await stage.world.clock.sleep(5 * CYCLE_SPACING)
    assert "b-worker-0" not in stage.pods()
    clock.jump(ASSUMED_SECONDS + 1)
    await stage.until_pods("a-worker-0", "b-worker-0")


async def test_nor_does_one_of_a_job_that_is_gone_though_nothing_else_happens(stage: Stage) -> None:
    await stage.node("n", cpu="1")
    clock = Jumping()
    cluster = await slow(stage, 1, "a-worker-0", clock=clock)
    await stage.world.client.delete(TFJOBS, Key("default", "a"))
    await b_waits(stage)

    cluster.error = unavailable("the connection was lost")
    cluster.let_through.set()
    await cluster.failed.wait()
    await stage.world.clock.sleep(5 * CYCLE_SPACING)
    clock.jump(ASSUMED_SECONDS + 1)
    await stage.until_pods("b-worker-0")


async def test_a_pod_that_an_earlier_job_asked_for_is_not_taken_for_one_of_the_next_of_its_name(stage: Stage) -> None:
    await stage.node("n", cpu="3")
    cluster = await slow(stage, 1, "a-worker-0")
    again = job("a", Worker=group(1, cpu="2"))
    await stage.world.client.delete(TFJOBS, Key("default", "a"))
    await stage.world.client.create(TFJOBS, again)
    await stage.world.until(lambda: bool(stage.admission("a").get("nodes")))

    await stage.submit("b", Worker=group(1, cpu="1"))
    await stage.world.until(lambda: bool(stage.admission("b")))
    assert stage.admission("b")["wait"]["code"] == "ResourcesReleasing"
    cluster.error = error_from_status({"code": 403, "reason": "Forbidden", "message": "quota"})
    cluster.let_through.set()
    await stage.world.until(lambda: "b-worker-0" in stage.pods())


async def test_what_an_operator_had_asked_for_when_it_was_killed_may_be_one_too_many_and_costs_no_restart(
    stage: Stage,
) -> None:
    """The next one can't know of it, and gives its place away."""
    await stage.node("n", cpu="2")
    cluster = SlowToMake(stage.world.client, "a-worker-1")
    first = asyncio.create_task(Operator(cluster, stage.world.clock, OperatorOptions(seed=1)).run())
    bounds: dict[str, Any] = {"min-instances": 1, "max-instances": 2}
    await stage.submit("a", Worker=group(2, cpu="1"), **bounds)
    await cluster.asked.wait()
    await wish(stage, 1)
    await b_waits(stage)
    await stage.kill(first)

    stage.start_operator()
    await stage.until_pods("a-worker-0", "b-worker-0")
    await cluster.carry_out()
    await refuse(stage, "b-worker-0", "OutOfcpu")
    await stage.world.until(lambda: "deletionTimestamp" in stage.pods()["a-worker-1"]["metadata"])
    await stage.end_pods()
    await stage.world.until(lambda: stage.made().count("b-worker-0") == 2)
    await stage.until_pods("a-worker-0", "b-worker-0")
    await stage.all_run("b-worker-0")
    await stage.until_state("b", "Running")
    assert restarts(stage, "b")["total"] == 0


async def test_what_a_job_has_lost_meanwhile_is_not_made_any_more(stage: Stage) -> None:
    await stage.node("n", cpu="8")
    first = [f"a-worker-{index}" for index in range(4)]
    cluster = await slow(stage, 6, *first)
    await wish(stage, 4)
    cluster.let_through.set()

    await stage.until_pods(*first)
    await stage.submit("b", Worker=group(1, cpu="1"))
    await stage.world.until(lambda: "b-worker-0" in stage.pods())
    assert sorted(stage.made()) == [*first, "b-worker-0"]


async def test_a_job_that_keeps_off_a_pod_which_may_still_come_waits_until_it_does_not(stage: Stage) -> None:
    await nodes(stage, "n")
    cluster = await slow(stage, 1, "a-worker-0")
    await stage.world.client.delete(TFJOBS, Key("default", "a"))

    of_a = {"tf-job-name": "a"}
    await stage.submit("b", Worker=workers(1, rule("podAntiAffinity", **of_a)))
    await stage.world.until(lambda: "leave 0 of 1 nodes" in wait(stage, "b").get("message", ""))
    cluster.error = error_from_status({"code": 403, "message": "exceeded quota: pods"})
    cluster.let_through.set()
    await stage.until_pods("b-worker-0")


async def test_a_pod_that_was_moved_after_no_answer_may_still_come_to_where_it_was_asked_for_first(
    stage: Stage,
) -> None:
    await stage.node("m", cpu="1")
    await stage.node("n", cpu="1")
    cluster = await slow(stage, 1, "a-worker-0")
    cluster.error = unavailable("the connection was lost")
    cluster.let_through.set()
    [first] = stage.admission("a")["nodes"]["Worker"]
    await stage.world.client.patch(NODES, Key("", first), {"spec": {"unschedulable": True}})
    await stage.world.until(lambda: first not in stage.admission("a")["nodes"]["Worker"])
    cluster.asked.clear()
    await cluster.asked.wait()

    await stage.world.client.patch(NODES, Key("", first), {"spec": {"unschedulable": None}})
    await stage.submit("b", Worker=group(1, cpu="1"))
    await stage.world.until(lambda: bool(stage.admission("b").get("wait")))
    assert "b-worker-0" not in stage.pods()
