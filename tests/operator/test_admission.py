from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tarragon.base.clock import Clock, FakeClock
from tarragon.client.errors import Unavailable, unavailable
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import ALL_OBJECTS, Client, DeleteOptions
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import NODES, PODS
from tarragon.kube.meta import Key
from tarragon.operator.informers.informers import Informers
from tarragon.operator.scheduler.admission.writer import MAX_EVENT_LAG_SECONDS
from tarragon.operator.scheduler.gang_scheduler import GangScheduler
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.scheduling.api.decision import Decision
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.policies import POLICIES
from tarragon.scheduling.state.memory import Memory
from tests.operator.stage import TFJOBS, Json, Stage, group, job


class Network(DelegatingClient):
    """The API of the stage, with what may happen on the way to it and back."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.patched: list[str] = []
        self.answered: list[str] = []
        self.before_patch: Callable[[Key], Awaitable[None]] = nothing
        self.after_patch: Callable[[Key], Awaitable[None]] = nothing
        self.job_events = asyncio.Semaphore(1000)
        self.restored = False

    async def patch(self, resource: Any, key: Key, patch: Any, **how: Any) -> Any:
        self.patched.append(key.name)
        await self.before_patch(key)
        written = await super().patch(resource, key, patch, **how)
        self.answered.append(key.name)
        await self.after_patch(key)
        return written

    async def watch(self, resource: Any, selection: Any = ALL_OBJECTS, since: str = "") -> AsyncIterator[Any]:
        async for event in super().watch(resource, selection, since):
            if resource.plural == TFJOBS.plural and event.type != "BOOKMARK":
                await self.job_events.acquire()
            yield of_an_older_time(event) if self.restored else event


async def nothing(_: Key) -> None:
    return


def of_an_older_time(event: Any) -> Any:
    """As from a server whose storage was put back to a backup: it counts its versions from there."""
    if event.type == "BOOKMARK":
        return event
    found = decode(bytes(event.object), dict)
    found["metadata"]["resourceVersion"] = "1"
    return replace(event, object=msgspec.Raw(encode(found)))


class Scheduler:
    """The admitting half of an operator, round by round."""

    def __init__(self, stage: Stage, clock: Clock) -> None:
        self.stage = stage
        self.network = Network(stage.world.client)
        self.seen = Informers(self.network, FRAMEWORKS, clock, OperatorSettings(), random.Random(1))
        self._changed = asyncio.Event()
        for cache in self.seen.caches:
            cache.add_event_handler(lambda *_: self._changed.set())
        self.admitter = GangScheduler(self.network, clock, self.seen, POLICIES["fifo"])

    @property
    def nodes(self) -> Any:
        return self.seen.nodes.objects

    @property
    def jobs(self) -> Any:
        return self.seen.jobs["TFJob"].objects

    async def submit(self, name: str, **spec: Any) -> None:
        """Marked, as the reconciler has done it by then."""
        body = job(name, **spec)
        body["metadata"]["annotations"] = {GENERATION_ANNOTATION: "kubeflow.org/v1"}
        await self.stage.world.client.create(TFJOBS, body)
        await self.until(lambda: Key("default", name) in self.jobs)

    async def until(self, claim: Callable[[], bool]) -> None:
        """The caches see what the stage sees, a moment later."""
        async with asyncio.timeout(60):
            while not claim():
                self._changed.clear()
                await self._changed.wait()

    def is_admitted(self, name: str) -> bool:
        return "admitted" in self.stage.admission(name)


@asynccontextmanager
async def a_scheduler(stage: Stage, clock: Clock | None = None) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(stage, clock or stage.world.clock)
    tasks = [asyncio.create_task(cache.run()) for cache in scheduler.seen.caches]
    await scheduler.seen.wait_for_sync()
    try:
        yield scheduler
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_job_that_goes_while_its_admission_is_written_keeps_no_place(stage: Stage) -> None:
    await stage.node("n", cpu="1")
    async with a_scheduler(stage) as scheduler:
        await scheduler.submit("a", Worker=group(1, cpu="1"))

        async def deleted(key: Key) -> None:
            await stage.world.client.delete(TFJOBS, key, DeleteOptions())
            await scheduler.until(lambda: key not in scheduler.jobs)

        scheduler.network.after_patch = deleted
        await scheduler.admitter.run_cycle()
        scheduler.network.after_patch = nothing
        await scheduler.submit("b", Worker=group(1, cpu="1"))
        await scheduler.admitter.run_cycle()
        await stage.world.until(lambda: bool(stage.admission("b")))
        assert scheduler.is_admitted("b"), stage.admission("b")


async def test_a_watch_that_lags_behind_our_own_writes_does_not_undo_them(stage: Stage) -> None:
    await stage.node("n", cpu="1")
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    await stage.world.create(PODS, "hog", spec={"nodeName": "n", "containers": [container]})
    async with a_scheduler(stage) as scheduler:
        network = scheduler.network
        await scheduler.submit("a", Worker=group(1, cpu="1"))
        network.job_events = asyncio.Semaphore(0)
        await scheduler.admitter.run_cycle()
        await stage.world.delete(PODS, "hog")
        await stage.end_pods()
        await scheduler.until(lambda: Key("default", "hog") not in scheduler.seen.pods.objects)
        await scheduler.admitter.run_cycle()
        assert network.patched == ["a", "a"]
        network.job_events.release()
        shown = scheduler.jobs[Key("default", "a")].metadata.resource_version
        await scheduler.until(lambda: scheduler.jobs[Key("default", "a")].metadata.resource_version != shown)
        await scheduler.admitter.run_cycle()
        assert network.patched == ["a", "a"]


async def test_a_server_that_was_put_back_to_a_backup_is_believed_after_a_while(stage: Stage) -> None:
    clock = FakeClock()
    await stage.node("n", cpu="1")
    async with a_scheduler(stage, clock) as scheduler:
        await scheduler.submit("a", Worker=group(1, cpu="100"))
        await scheduler.admitter.run_cycle()
        clock.advance(MAX_EVENT_LAG_SECONDS)
        scheduler.network.restored = True
        await stage.world.client.patch(
            TFJOBS, Key("default", "a"), {"spec": job("a", Worker=group(1, cpu="1"))["spec"]}
        )
        await scheduler.until(lambda: scheduler.jobs[Key("default", "a")].metadata.resource_version == "1")
        await scheduler.admitter.run_cycle()
        # Our version is not the server's, so the write is refused; but the job was admitted as far as we can.
        assert scheduler.network.patched == ["a", "a"]


async def test_a_round_is_over_when_all_its_writes_are(stage: Stage) -> None:
    """Else the next one would sell again what is on its way."""
    await stage.node("n")
    async with a_scheduler(stage) as scheduler:
        await scheduler.submit("bad", Worker=group(1))
        await scheduler.submit("good", Worker=group(1))

        async def no_answer(key: Key) -> None:
            if key.name == "bad":
                raise unavailable("no answer")

        scheduler.network.before_patch = no_answer
        with pytest.raises(Unavailable):
            await scheduler.admitter.run_cycle()
        assert scheduler.network.answered == ["good"]


async def test_a_job_that_somebody_else_manages_takes_no_room(stage: Stage) -> None:
    await stage.node("n", cpu="1")
    async with a_scheduler(stage) as scheduler:
        await scheduler.submit("a", Worker=group(1, cpu="1"), runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})
        await scheduler.submit("b", Worker=group(1, cpu="1"))
        await scheduler.admitter.run_cycle()
        await stage.world.until(lambda: bool(stage.admission("b")))
        assert scheduler.is_admitted("b"), stage.admission("b")
        assert not stage.admission("a")


async def test_a_round_thinks_anew_only_about_what_has_changed(stage: Stage) -> None:
    """A thousand jobs on a thousand nodes took eight seconds a round, and every pod that comes or goes begins one."""
    await stage.node("n")
    async with a_scheduler(stage) as scheduler:
        await scheduler.submit("a", Worker=group(1, cpu="100"))
        seen: list[Snapshot] = []

        def policy(snapshot: Snapshot, _: Memory) -> Sequence[Decision]:
            seen.append(snapshot)
            return ()

        admitter = GangScheduler(scheduler.network, stage.world.clock, scheduler.seen, policy)
        await admitter.run_cycle()
        await admitter.run_cycle()
        assert seen[1].waiting[0].demands is seen[0].waiting[0].demands

        await stage.node("m")
        await scheduler.until(lambda: any(key.name == "m" and node.is_ready for key, node in scheduler.nodes.items()))
        await admitter.run_cycle()
        assert [demand.eligible_nodes for demand in seen[2].waiting[0].demands] == [{"m", "n"}]

        await stage.world.client.patch(TFJOBS, Key("default", "a"), wish(2))
        await scheduler.until(lambda: scheduler.jobs[Key("default", "a")].spec == job("a", **spec_of(2))["spec"])
        await admitter.run_cycle()
        assert [demand.requested for demand in seen[3].waiting[0].demands] == [2]


async def test_of_jobs_that_came_and_went_a_standby_remembers_nothing(stage: Stage) -> None:
    async with a_scheduler(stage) as scheduler:
        await scheduler.submit("a", Worker=group(1))
        owner = await stage.world.client.get(TFJOBS, Key("default", "a"))
        controller = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "a", "controller": True}
        owners = [{**controller, "uid": owner.metadata.uid}, {**controller, "uid": "u", "kind": "Other"}]
        container = {"name": "c", "image": "i"}
        for name, metadata in zip(("mine", "other"), owners, strict=True):
            await stage.world.create(PODS, name, spec={"containers": [container]}, owners=[metadata])
        await scheduler.until(lambda: len(scheduler.seen.pods.objects) == len(owners))
        assert scheduler.admitter.pending_changes == 2  # the job has changed, and what its pods leave of its places

        for name in ("mine", "other"):
            await stage.world.delete(PODS, name)
        await stage.world.delete(TFJOBS, "a")
        await stage.end_pods()
        await scheduler.until(lambda: not scheduler.seen.pods.objects and not scheduler.jobs)
        assert scheduler.admitter.pending_changes == 0


async def test_a_job_whose_node_has_gone_since_the_last_round_is_housed_by_the_next(stage: Stage) -> None:
    await stage.node("n")
    async with a_scheduler(stage) as scheduler:
        await scheduler.submit("a", Worker=group(1))
        await scheduler.admitter.run_cycle()
        await scheduler.until(lambda: bool(scheduler.jobs[Key("default", "a")].status))
        await scheduler.admitter.run_cycle()
        await stage.world.delete(NODES, "n", namespace="")
        await stage.node("m")
        await scheduler.until(lambda: [key.name for key in scheduler.nodes] == ["m"])
        await scheduler.until(lambda: all(node.is_ready for node in scheduler.nodes.values()))
        await scheduler.admitter.run_cycle()
        await stage.world.until(lambda: "m" in str(stage.admission("a")["nodes"]))


def spec_of(replicas: int) -> Json:
    return {"Worker": group(replicas, cpu="100")}


def wish(replicas: int) -> Json:
    return {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": replicas}}}}
