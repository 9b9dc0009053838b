from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, TypeVar

from tarragon.base.clock import FakeClock, SystemClock
from tarragon.client.errors import Forbidden
from tarragon.client.port import ALL_OBJECTS, ObjectList, Selector, WatchEvent
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.core import NAMESPACES, NODES, PODS, SERVICES
from tarragon.kube.meta import Key, Resource
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.registry.client import InProcessCluster
from tarragon.operator.informers.informers import FORBIDDEN_GRACE_SECONDS, Informers
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.plan.nodes.left_to_kube_scheduler import LEFT_TO_KUBE_SCHEDULER
from tarragon.plan.objects.settings import OperatorSettings
from tests.localcluster.controllers.world import PATIENCE
from tests.operator.stage import TFJOBS, Stage, group, job

T = TypeVar("T")


class Guarded(InProcessCluster):
    """The embedded API, which knows no roles, with kinds that may be read or not: nodes, or all."""

    def __init__(self, api: Api, *kinds: Resource[Any]) -> None:
        super().__init__(api)
        self.withdrawn = asyncio.Event()
        self._kinds = {kind.plural for kind in kinds or (NODES,)}

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS) -> ObjectList[T]:
        if resource.plural in self._kinds:
            self._refuse()
        return await super().list(resource, selection)

    async def watch(self, resource: Resource[T], selection: Selector, since: str) -> AsyncIterator[WatchEvent[T]]:
        if resource.plural in self._kinds:
            await self.withdrawn.wait()
            self._refuse()
        async for event in super().watch(resource, selection, since):
            yield event

    def _refuse(self) -> None:
        if self.withdrawn.is_set():
            raise Forbidden({"code": 403, "reason": "Forbidden", "message": "nodes is forbidden"})


async def test_without_leave_to_read_nodes_jobs_start_at_once_and_kube_scheduler_finds_places(stage: Stage) -> None:
    guarded = Guarded(stage.world.api)
    guarded.withdrawn.set()
    operator = asyncio.create_task(Operator(guarded, stage.world.clock, OperatorOptions(seed=1)).run())
    await stage.submit("a", PS=group(1), Worker=group(2, cpu="1000"))
    await stage.until_pods("a-ps-0", "a-worker-0", "a-worker-1")
    await stage.world.until(
        lambda: (
            condition(stage, "a").get("reason") == LEFT_TO_KUBE_SCHEDULER and bool(stage.events(LEFT_TO_KUBE_SCHEDULER))
        )
    )

    assert not any("nodeName" in pod["spec"] for pod in stage.pods().values())
    assert stage.admission("a")["size"] == {"PS": 1, "Worker": 2}
    assert condition(stage, "a")["status"] == "True"
    assert stage.events(LEFT_TO_KUBE_SCHEDULER) == [condition(stage, "a")["message"]]
    await stage.kill(operator)


async def test_a_job_that_claims_devices_is_left_to_kube_scheduler_and_others_are_placed(stage: Stage) -> None:
    """CPU and memory would put it on a node; which one has the devices, kube-scheduler alone knows."""
    await stage.node("n")
    claiming = group(2, cpu="1")
    claiming["template"]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    await stage.submit("claims", Worker=claiming)
    await stage.submit("plain", Worker=group(1, cpu="1"))
    stage.start_operator()
    await stage.until_pods("claims-worker-0", "claims-worker-1", "plain-worker-0")
    await stage.world.until(lambda: condition(stage, "claims").get("reason") == LEFT_TO_KUBE_SCHEDULER)

    specs = {name: pod["spec"] for name, pod in stage.pods().items()}
    assert specs.pop("plain-worker-0")["nodeName"] == "n"
    assert all("nodeName" not in spec and "affinity" not in spec for spec in specs.values())
    assert "the devices of their resourceClaims" in condition(stage, "claims")["message"]


async def test_a_job_that_was_left_to_kube_scheduler_stays_so_when_we_may_place_again(stage: Stage) -> None:
    guarded = Guarded(stage.world.api)
    guarded.withdrawn.set()
    operator = asyncio.create_task(Operator(guarded, stage.world.clock, OperatorOptions(seed=1)).run())
    await stage.submit("a", Worker=group(2))
    await stage.until_pods("a-worker-0", "a-worker-1")
    await stage.kill(operator)
    await stage.node("n")
    stage.start_operator()
    await stage.submit("b", Worker=group(1))
    await stage.world.until(lambda: "b-worker-0" in stage.pods())

    assert stage.pods()["b-worker-0"]["spec"]["nodeName"] == "n"
    await stage.world.client.patch(TFJOBS, Key("default", "a"), wish(1))
    await stage.world.until(lambda: "a-worker-1" not in stage.pods())
    assert Counter(stage.made()) == {"a-worker-0": 1, "a-worker-1": 1, "b-worker-0": 1}
    assert "nodes" not in stage.admission("a")


async def test_of_some_namespaces_the_jobs_of_others_are_left_alone(stage: Stage) -> None:
    await stage.world.create(NAMESPACES, "other", namespace="")
    settings = OperatorSettings(namespaces=("other", "default"))
    options = OperatorOptions(seed=1, settings=settings)
    operator = asyncio.create_task(Operator(stage.world.client, stage.world.clock, options).run())
    await stage.world.create(NAMESPACES, "third", namespace="")
    for namespace in ("third", "other", "default"):
        manifest = job("a", Worker=group(1))
        await stage.world.client.create(
            TFJOBS, {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
        )
    for namespace in ("other", "default"):
        await stage.world.until(partial(stage.world.objects.__contains__, f"pods/{namespace}/a-worker-0"))

    assert "status" not in stage.world.objects["tfjobs/third/a"]
    await stage.kill(operator)


async def test_leave_that_is_withdrawn_for_a_moment_changes_nothing(stage: Stage) -> None:
    """As when a role is made anew."""
    await stage.node("n")
    guarded, clock = Guarded(stage.world.api), FakeClock()
    world = Informers(guarded, FRAMEWORKS, clock, OperatorSettings(), random.Random(1))
    running = [asyncio.create_task(cache.run()) for cache in world.caches]
    await world.wait_for_sync()
    assert places(world)
    guarded.withdrawn.set()
    await until(lambda: world.nodes.failure is not None)

    assert places(world)
    clock.advance(FORBIDDEN_GRACE_SECONDS - 1)
    assert places(world)
    clock.advance(1)
    assert not places(world)
    guarded.withdrawn.clear()
    await until(lambda: passes(clock, 10) and world.nodes.failure is None)
    assert places(world)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_where_nothing_may_be_read_for_long_no_gang_is_left_to_anybody(stage: Stage) -> None:
    guarded, clock = Guarded(stage.world.api, NODES, PODS, SERVICES, TFJOBS), FakeClock()
    world = Informers(guarded, FRAMEWORKS, clock, OperatorSettings(), random.Random(1))
    running = [asyncio.create_task(cache.run()) for cache in world.caches]
    await world.wait_for_sync()
    guarded.withdrawn.set()
    await until(lambda: all(cache.failure is not None for cache in (world.nodes, world.pods, world.services)))
    clock.advance(10 * FORBIDDEN_GRACE_SECONDS)
    assert places(world)

    guarded.withdrawn.clear()
    await until(lambda: passes(clock, 1) and world.pods.failure is None)
    assert places(world)
    await until(lambda: passes(clock, 1) and world.nodes.failure is None)
    assert places(world)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def condition(stage: Stage, name: str) -> dict[str, str]:
    found = (stage.job(name).get("status") or {}).get("conditions", [])
    return next((each for each in found if each["type"] == "Admitted"), {})


def wish(workers: int) -> dict[str, object]:
    return {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": workers}}}}


def places(world: Informers) -> bool:
    return world.can_place_pods


def passes(clock: FakeClock, seconds: float) -> bool:
    clock.advance(seconds)
    return True


async def until(claim: Callable[[], bool]) -> None:
    """Of what only the event loop brings about."""
    clock = SystemClock()
    async with asyncio.timeout(PATIENCE):
        while not claim():
            await clock.sleep(0)
