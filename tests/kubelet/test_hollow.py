"""Pods without processes: what their annotations say comes true in the API, by the clock."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tarragon.base.clock import ManualClock, SystemClock
from tarragon.client.errors import AlreadyExists, Forbidden, NotFound, Unavailable
from tarragon.client.http.client import Http
from tarragon.client.http.connection import kubeconfig
from tarragon.client.informer.reflector import Cache
from tarragon.client.middleware.counted import Call, Counted
from tarragon.client.port import Cluster, DeleteOptions, Selection
from tarragon.kube.core import NAMESPACES, NODES, PODS
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.hollow.kubelet import Hollow, HollowSettings
from tarragon.localcluster.registry.api import Api
from tests.kubelet.builders import container_json, pod_json
from tests.kubelet.world import ANY_POD, World
from tools.controlplane import ControlPlane

Json = dict[str, Any]


class HollowWorld(World):
    """The node `n` is hollow, and the clock stands until a test turns it."""

    def __init__(self, api: Api, folder: Path, clock: ManualClock) -> None:
        super().__init__(api, folder)
        self.clock = clock
        self._hollow: asyncio.Task[None] | None = None

    async def begin(self, **settings: Any) -> None:
        hollow = Hollow(self.cluster, HollowSettings(names=["n"], **settings), self.clock)
        self._hollow = asyncio.create_task(hollow.run())
        await hollow.registered()

    async def until_node_is_ready(self) -> None:
        async with asyncio.timeout(60):
            while True:
                self.clock.advance(0.5)
                with contextlib.suppress(NotFound):
                    if (await self.cluster.get(NODES, Key("", "n"))).is_ready:
                        return
                await asyncio.sleep(0)  # noqa: TID251 - gives the others their turn

    async def end(self) -> None:
        if self._hollow:
            self._hollow.cancel()
            await asyncio.gather(self._hollow, return_exceptions=True)

    async def pod(self, annotations: Mapping[str, str] | None = None, name: str = "p", **spec: Any) -> Json:
        marked = {f"tarragon.dev/hollow-{key.replace('_', '-')}": value for key, value in (annotations or {}).items()}
        return await self.create(name, metadata={"annotations": marked}, **{"restartPolicy": "Never", **spec})


@pytest.fixture
async def hollow(tmp_path: Path) -> AsyncIterator[HollowWorld]:
    clock = ManualClock()
    world = HollowWorld(await Api.open(tmp_path / "state.db", clock), tmp_path, clock)
    with contextlib.suppress(AlreadyExists):
        await world.cluster.create(NAMESPACES, {"metadata": {"name": "default"}})
    yield world
    await world.end()
    await world.close()


def container_of(pod: Json) -> Json:
    status: Json = pod["status"]["containerStatuses"][0]
    return status


async def test_a_node_that_was_taken_for_lost_says_that_it_is_ready(hollow: HollowWorld) -> None:
    await hollow.begin()
    lost = {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}
    await hollow.cluster.patch(NODES, Key("", "n"), {"status": lost}, subresource="status")

    await hollow.until_node_is_ready()


async def test_a_node_that_was_deleted_registers_again(hollow: HollowWorld) -> None:
    await hollow.begin()
    await hollow.cluster.delete(NODES, Key("", "n"))

    await hollow.until_node_is_ready()


async def test_a_pod_runs_as_long_as_it_says_and_ends_as_it_says(hollow: HollowWorld) -> None:
    await hollow.begin()
    await hollow.pod({"seconds": "3600", "exit_code": "3"})
    begun = await hollow.phase("Running")

    hollow.clock.advance(3599)
    await hollow.pod({"seconds": "0"}, name="later")
    await hollow.phase("Succeeded", "later")
    still = await hollow.get()
    hollow.clock.advance(1)
    over = await hollow.phase("Failed")

    assert still["status"]["phase"] == "Running"
    assert begun["status"]["startTime"] == "2026-01-01T00:00:00Z"
    assert begun["status"]["podIP"].startswith("10.")
    assert container_of(begun)["ready"]
    assert container_of(over)["state"]["terminated"] == {
        "exitCode": 3,
        "reason": "Error",
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T01:00:00Z",
    }
    ready = {each["type"]: each["status"] for each in over["status"]["conditions"]}
    assert ready == {"Initialized": "True", "Ready": "False", "ContainersReady": "False", "PodScheduled": "True"}


async def test_a_pod_that_says_nothing_runs_until_it_is_deleted(hollow: HollowWorld) -> None:
    await hollow.begin()
    await hollow.pod()
    await hollow.phase("Running")
    seen: list[Json] = []
    watch = Cache(hollow.cluster, ANY_POD, SystemClock(), jitter=random.Random(1))
    watch.subscribe(lambda _key, _old, new: seen.append(new) if new else None)
    watching = asyncio.create_task(watch.run())
    await watch.synced()

    hollow.clock.advance(1e6)
    await hollow.delete()
    await hollow.vanished()

    watching.cancel()
    assert container_of(seen[-1])["state"]["terminated"]["exitCode"] == 143


async def test_a_deleted_pod_takes_its_time_to_end_but_no_longer_than_its_grace(hollow: HollowWorld) -> None:
    await hollow.begin()
    await hollow.pod({"stop_seconds": "20"}, name="polite")
    await hollow.pod({"stop_seconds": "1000"}, name="stubborn")
    for name in ("polite", "stubborn"):
        await hollow.phase("Running", name)
        await hollow.delete(name)

    hollow.clock.advance(20)
    await hollow.vanished("polite")
    left = await hollow.get("stubborn")
    hollow.clock.advance(10)
    await hollow.vanished("stubborn")

    assert left["status"]["phase"] == "Running"


async def test_another_hollow_kubelet_goes_on_where_one_has_stopped(hollow: HollowWorld) -> None:
    await hollow.begin()
    await hollow.pod({"seconds": "100"})
    begun = await hollow.phase("Running")
    await hollow.end()

    hollow.clock.advance(60)
    await hollow.begin()
    await hollow.pod({"seconds": "0"}, name="later")
    await hollow.phase("Succeeded", "later")
    between = await hollow.get()
    hollow.clock.advance(40)
    over = await hollow.phase("Succeeded")

    assert between["metadata"]["resourceVersion"] == begun["metadata"]["resourceVersion"]
    assert container_of(over)["state"]["terminated"]["finishedAt"] == "2026-01-01T00:01:40Z"


async def test_a_container_that_fails_is_started_again_where_its_pod_wants_that(hollow: HollowWorld) -> None:
    await hollow.begin(seconds=5, exit_code=1)
    await hollow.pod(restartPolicy="OnFailure")
    await hollow.phase("Running")

    hollow.clock.advance(5)
    again = await hollow.until(lambda pod: container_of(pod)["restartCount"] == 1)
    hollow.clock.advance(10)
    third = await hollow.until(lambda pod: container_of(pod)["restartCount"] == 2)

    assert again["status"]["phase"] == third["status"]["phase"] == "Running"
    assert container_of(again)["lastState"]["terminated"]["exitCode"] == 1


class Deletes:
    """How many were answered."""

    def __init__(self) -> None:
        self.count = 0

    def called(self, call: Call) -> None:
        self.count += call.verb == "delete"

    def watch_began(self, resource: str) -> None: ...

    def watch_brought(self, resource: str) -> None: ...

    def watch_ended(self, resource: str, code: int) -> None: ...


async def test_a_pod_that_a_finalizer_holds_is_not_deleted_again_and_again(hollow: HollowWorld) -> None:
    deletes = Deletes()
    counted = Counted(hollow.cluster, hollow.clock, deletes)
    running = asyncio.create_task(Hollow(counted, HollowSettings(names=["n"]), hollow.clock).run())
    await hollow.create("p", metadata={"finalizers": ["example.com/wait"]})
    await hollow.phase("Running")

    await hollow.delete()
    await hollow.phase("Failed")
    await hollow.until(lambda pod: pod["metadata"]["deletionGracePeriodSeconds"] == 0)
    hollow.clock.advance(3600)
    await hollow.pod({"seconds": "0"}, name="later")
    await hollow.phase("Succeeded", "later")
    count = deletes.count
    await hollow.cluster.patch(PODS, Key("default", "p"), {"metadata": {"finalizers": None}})
    await hollow.vanished()

    running.cancel()
    assert count <= 2


async def test_what_is_no_number_fails_the_pod_with_words(hollow: HollowWorld) -> None:
    await hollow.begin()
    await hollow.pod({"seconds": "soon"})

    pod = await hollow.phase("Failed")

    assert "'soon'" in pod["status"]["message"]


async def test_pods_of_other_nodes_are_left_alone(hollow: HollowWorld) -> None:
    await hollow.begin()
    await hollow.pod({"seconds": "0"}, name="theirs", nodeName="m")
    await hollow.pod({"seconds": "0"})

    await hollow.phase("Succeeded")

    assert "startTime" not in (await hollow.get("theirs"))["status"]


async def test_five_hundred_nodes_of_one_hollow_kubelet_run_two_thousand_pods(hollow: HollowWorld) -> None:
    names = [f"n{number}" for number in range(500)]
    kubelet = Hollow(hollow.cluster, HollowSettings(names=names, seconds=60), hollow.clock)
    running = asyncio.create_task(kubelet.run())
    phases: dict[Key, list[str]] = {}
    ended = asyncio.Event()

    def note(key: Key, _: Any, pod: Any) -> None:
        if pod.status.phase not in phases.setdefault(key, []):
            phases[key].append(pod.status.phase)
        if len(phases) == 2000 and all(len(each) == 3 for each in phases.values()):
            ended.set()
        elif len(phases) == 2000 and all(len(each) == 2 for each in phases.values()):
            hollow.clock.advance(60)

    watch = Cache(hollow.cluster, PODS, SystemClock(), jitter=random.Random(1))
    watch.subscribe(note)
    watching = asyncio.create_task(watch.run())
    for number in range(2000):
        node = names[number % 500]
        await hollow.cluster.create(ANY_POD, pod_json(f"p{number}", nodeName=node, restartPolicy="Never"))
    async with asyncio.timeout(120):
        await ended.wait()

    for task in (running, watching):
        task.cancel()
    assert set(map(tuple, phases.values())) == {("Pending", "Running", "Succeeded")}
    assert len((await hollow.cluster.list(NODES)).items) == 500


async def created(cluster: Cluster, pod: Json) -> None:
    """A real server refuses pods until a controller has made the namespace's service account and its token."""
    async with asyncio.timeout(60):
        while True:
            try:
                await cluster.create(ANY_POD, pod)
            except (Forbidden, Unavailable):
                await SystemClock().sleep(0.05)
            else:
                return


@pytest.mark.real
async def test_on_a_real_control_plane_hollow_nodes_are_ready_and_take_pods_of_its_scheduler(
    control_plane: ControlPlane,
) -> None:
    async with Http(kubeconfig({}, path=control_plane.kubeconfig).server, random.Random(1)) as cluster:
        namespace = "hollow"
        await cluster.create(NAMESPACES, {"metadata": {"name": namespace}})
        names = [f"hollow-{number}" for number in range(3)]
        settings = HollowSettings(names=names, labels={"test": "hollow"}, seconds=0)
        running = asyncio.create_task(Hollow(cluster, settings, SystemClock()).run())
        pod = pod_json("p", container_json(), nodeName="", nodeSelector={"test": "hollow"}, restartPolicy="Never")
        pod["metadata"]["namespace"] = namespace
        pods = Cache(cluster, PODS, SystemClock(), Selection(namespace=namespace), jitter=random.Random(1))
        ended = asyncio.Event()
        pods.subscribe(lambda _key, _old, new: ended.set() if new is not None and new.is_finished else None)
        watching = asyncio.create_task(pods.run())

        await created(cluster, pod)
        async with asyncio.timeout(60):
            await ended.wait()
        over = await cluster.get(PODS, Key(namespace, "p"))
        nodes = {node.metadata.name: node for node in (await cluster.list(NODES)).items if node.metadata.name in names}

        for task in (running, watching):
            task.cancel()
        await asyncio.gather(running, watching, return_exceptions=True)
        for name in names:
            await cluster.delete(NODES, Key("", name))
        await cluster.delete(PODS, Key(namespace, "p"), DeleteOptions(grace_seconds=0))
    assert over.status.phase == "Succeeded"
    assert over.spec.node_name in names
    assert all(node.is_ready for node in nodes.values())


async def test_who_asks_for_more_than_is_left_is_refused_until_somebody_ends(hollow: HollowWorld) -> None:
    await hollow.begin(capacity={"cpu": 1000, "pods": 9000})
    whole = container_json(resources={"requests": {"cpu": "1"}})
    await hollow.create("first", whole)
    await hollow.phase("Running", "first")
    await hollow.create("second", whole)
    refused = await hollow.phase("Failed", "second")
    await hollow.delete("first")
    await hollow.vanished("first")
    await hollow.create("third", whole)
    await hollow.phase("Running", "third")

    assert refused["status"]["reason"] == "OutOfcpu"


async def test_another_hollow_kubelet_knows_what_its_running_pods_hold(hollow: HollowWorld) -> None:
    await hollow.begin(capacity={"cpu": 1000, "pods": 9000})
    whole = container_json(resources={"requests": {"cpu": "1"}})
    await hollow.create("first", whole)
    await hollow.phase("Running", "first")
    await hollow.end()
    await hollow.create("second", whole)
    await hollow.begin(capacity={"cpu": 1000, "pods": 9000})

    assert (await hollow.phase("Failed", "second"))["status"]["reason"] == "OutOfcpu"
