"""The hollow kubelet: pods start and end in the API as their annotations say, by a manual clock."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tarragon.base.clock import FakeClock, SystemClock
from tarragon.client.errors import AlreadyExists, Forbidden, NotFound, Unavailable, unavailable
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.client.informer.informer import Informer
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.middleware.instrumented import CallResult, InstrumentedClient
from tarragon.client.port import ALL_OBJECTS, Client, DeleteOptions, ObjectList, Selector, WatchEvent
from tarragon.kube.core import NAMESPACES, NODES, PODS
from tarragon.kube.meta import Key, Resource
from tarragon.localcluster.kubelet.hollow.kubelet import HollowKubelet, HollowSettings
from tarragon.localcluster.registry.api import Api
from tests.localcluster.kubelet.builders import container_json, pod_json
from tests.localcluster.kubelet.gpu_pods import GI, shared_metadata
from tests.localcluster.kubelet.world import ANY_POD, World
from tools.controlplane import ControlPlane

Json = dict[str, Any]


class HollowWorld(World):
    """A hollow node `n` with a manual clock."""

    def __init__(self, api: Api, folder: Path, clock: FakeClock) -> None:
        super().__init__(api, folder)
        self.clock = clock
        self._hollow: asyncio.Task[None] | None = None

    async def begin(self, cluster: Client | None = None, **settings: Any) -> None:
        hollow = HollowKubelet(cluster or self.cluster, HollowSettings(names=["n"], **settings), self.clock)
        self._hollow = asyncio.create_task(hollow.run())
        await hollow.registered()

    async def until_node_is_ready(self) -> None:
        async with asyncio.timeout(60):
            while True:
                self.clock.advance(0.5)
                with contextlib.suppress(NotFound):
                    if (await self.cluster.get(NODES, Key("", "n"))).is_ready:
                        return
                await asyncio.sleep(0)  # noqa: TID251 - lets other tasks run

    async def end(self) -> None:
        if self._hollow:
            self._hollow.cancel()
            await asyncio.gather(self._hollow, return_exceptions=True)

    async def pod(self, annotations: Mapping[str, str] | None = None, name: str = "p", **spec: Any) -> Json:
        marked = {f"tarragon.dev/hollow-{key.replace('_', '-')}": value for key, value in (annotations or {}).items()}
        return await self.create(name, metadata={"annotations": marked}, **{"restartPolicy": "Never", **spec})


@pytest.fixture
async def hollow(tmp_path: Path) -> AsyncIterator[HollowWorld]:
    clock = FakeClock()
    world = HollowWorld(await Api.open(tmp_path / "state.db", clock), tmp_path, clock)
    with contextlib.suppress(AlreadyExists):
        await world.cluster.create(NAMESPACES, {"metadata": {"name": "default"}})
    yield world
    await world.end()
    await world.close()


def container_of(pod: Json) -> Json:
    status: Json = pod["status"]["containerStatuses"][0]
    return status


async def test_a_node_marked_as_lost_reports_ready_again(hollow: HollowWorld) -> None:
    await hollow.begin()
    lost = {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}
    await hollow.cluster.patch(NODES, Key("", "n"), {"status": lost}, subresource="status")

    await hollow.until_node_is_ready()


async def test_a_node_that_was_deleted_registers_again(hollow: HollowWorld) -> None:
    await hollow.begin()
    await hollow.cluster.delete(NODES, Key("", "n"))

    await hollow.until_node_is_ready()


class LateList(DelegatingClient):
    """A client whose list of nodes begins late."""

    def __init__(self, cluster: Client) -> None:
        super().__init__(cluster)
        self.may_list_nodes = asyncio.Event()

    async def list(self, resource: Resource[Any], selection: Selector = ALL_OBJECTS) -> ObjectList[Any]:
        if resource.plural == NODES.plural:
            await self.may_list_nodes.wait()
        return await super().list(resource, selection)


async def test_a_node_that_was_deleted_before_anybody_watched_registers_again(hollow: HollowWorld) -> None:
    late = LateList(hollow.cluster)
    await hollow.begin(late)
    await hollow.cluster.delete(NODES, Key("", "n"))
    late.may_list_nodes.set()

    await hollow.until_node_is_ready()


async def test_a_pod_runs_and_ends_as_its_annotations_say(hollow: HollowWorld) -> None:
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


async def test_a_pod_without_annotations_runs_until_it_is_deleted(hollow: HollowWorld) -> None:
    await hollow.begin()
    await hollow.pod()
    await hollow.phase("Running")
    seen: list[Json] = []
    watch = Informer(hollow.cluster, ANY_POD, SystemClock(), jitter=random.Random(1))
    watch.add_event_handler(lambda _key, _old, new: seen.append(new) if new else None)
    watching = asyncio.create_task(watch.run())
    await watch.wait_for_sync()

    hollow.clock.advance(1e6)
    await hollow.delete()
    await hollow.vanished()

    watching.cancel()
    assert container_of(seen[-1])["state"]["terminated"]["exitCode"] == 143


async def test_a_deleted_pod_stops_after_its_stop_time_or_its_grace_period(hollow: HollowWorld) -> None:
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


async def test_another_hollow_kubelet_continues_from_the_state_in_the_api(hollow: HollowWorld) -> None:
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


async def test_a_failed_container_is_restarted_by_the_restart_policy(hollow: HollowWorld) -> None:
    await hollow.begin(seconds=5, exit_code=1)
    await hollow.pod(restartPolicy="OnFailure")
    await hollow.phase("Running")

    hollow.clock.advance(5)
    again = await hollow.until(lambda pod: container_of(pod)["restartCount"] == 1)
    hollow.clock.advance(10)
    third = await hollow.until(lambda pod: container_of(pod)["restartCount"] == 2)

    assert again["status"]["phase"] == third["status"]["phase"] == "Running"
    assert container_of(again)["lastState"]["terminated"]["exitCode"] == 1


class LossyLine(DelegatingClient):
    """A client that can lose the next status of a pod on its way, or only the answer, after the watch has shown it."""

    def __init__(self, cluster: Client) -> None:
        super().__init__(cluster)
        self.loses_request = False
        self.loses_answer = False
        self.lost = asyncio.Event()
        self._version = 0
        self._moved = asyncio.Event()

    async def watch(self, resource: Resource[Any], selection: Selector, since: str) -> AsyncIterator[WatchEvent[Any]]:
        async for event in super().watch(resource, selection, since):
            yield event
            # Whoever asks for the next event has handled this one.
            if resource.plural == PODS.plural:
                self._version = int(event.resource_version)
                self._moved.set()

    async def patch(self, resource: Resource[Any], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> Any:
        if resource.plural != PODS.plural:
            return await super().patch(resource, key, patch, subresource=subresource)
        loses_request, self.loses_request = self.loses_request, False
        loses_answer, self.loses_answer = self.loses_answer, False
        if loses_request:
            self._lose()
        written = await super().patch(resource, key, patch, subresource=subresource)
        if loses_answer:
            while self._version < written.version:
                self._moved.clear()
                await self._moved.wait()
            self._lose()
        return written

    def _lose(self) -> NoReturn:
        self.lost.set()
        raise unavailable("the line is cut")


async def test_a_pod_runs_for_its_time_though_the_answer_to_its_start_is_lost(hollow: HollowWorld) -> None:
    line = LossyLine(hollow.cluster)
    await hollow.begin(line, writers=1)
    line.loses_answer = True
    await hollow.pod({"seconds": "3600"})
    await line.lost.wait()

    hollow.clock.advance(3599)
    await hollow.pod({"seconds": "0"}, name="later")
    await hollow.phase("Succeeded", "later")
    still = await hollow.get()
    hollow.clock.advance(1)
    await hollow.phase("Succeeded")

    assert still["status"]["phase"] == "Running"


async def test_a_pod_stays_ended_though_the_answer_to_its_end_is_lost(hollow: HollowWorld) -> None:
    line = LossyLine(hollow.cluster)
    await hollow.begin(line, writers=1)
    await hollow.pod({"seconds": "5"})
    await hollow.phase("Running")
    line.loses_answer = True
    hollow.clock.advance(5)
    await line.lost.wait()

    hollow.clock.advance(3600)
    await hollow.pod({"seconds": "0"}, name="later")
    await hollow.phase("Succeeded", "later")

    assert (await hollow.get())["status"]["phase"] == "Succeeded"


async def test_a_restart_that_cannot_be_written_is_repeated_soon(hollow: HollowWorld) -> None:
    line = LossyLine(hollow.cluster)
    await hollow.begin(line, writers=1)
    await hollow.pod({"seconds": "3600"}, restartPolicy="Always")
    await hollow.phase("Running")
    line.loses_request = True
    hollow.clock.advance(3600)
    await line.lost.wait()

    hollow.clock.advance(1)

    await hollow.until(lambda pod: container_of(pod)["restartCount"] == 1)


class Deletes:
    """The number of requests."""

    def __init__(self) -> None:
        self.count = 0

    def on_call(self, call: CallResult) -> None:
        self.count += call.verb == "delete"

    def on_watch_started(self, resource: str) -> None: ...

    def on_watch_event(self, resource: str) -> None: ...

    def on_watch_ended(self, resource: str, code: int) -> None: ...


async def test_a_pod_with_a_finalizer_is_not_deleted_repeatedly(hollow: HollowWorld) -> None:
    deletes = Deletes()
    counted = InstrumentedClient(hollow.cluster, hollow.clock, deletes)
    running = asyncio.create_task(HollowKubelet(counted, HollowSettings(names=["n"]), hollow.clock).run())
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


async def test_an_annotation_that_is_not_a_number_fails_the_pod(hollow: HollowWorld) -> None:
    await hollow.begin()
    await hollow.pod({"seconds": "soon"})

    pod = await hollow.phase("Failed")

    assert "'soon'" in pod["status"]["message"]


async def test_pods_of_other_nodes_are_ignored(hollow: HollowWorld) -> None:
    await hollow.begin()
    await hollow.pod({"seconds": "0"}, name="theirs", nodeName="m")
    await hollow.pod({"seconds": "0"})

    await hollow.phase("Succeeded")

    assert "startTime" not in (await hollow.get("theirs"))["status"]


async def test_five_hundred_nodes_of_one_hollow_kubelet_run_two_thousand_pods(hollow: HollowWorld) -> None:
    names = [f"n{number}" for number in range(500)]
    kubelet = HollowKubelet(hollow.cluster, HollowSettings(names=names, seconds=60), hollow.clock)
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

    watch = Informer(hollow.cluster, PODS, SystemClock(), jitter=random.Random(1))
    watch.add_event_handler(note)
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


async def created(cluster: Client, pod: Json) -> None:
    """A real API server rejects pods until a controller has created the namespace's service account."""
    async with asyncio.timeout(60):
        while True:
            try:
                await cluster.create(ANY_POD, pod)
            except (Forbidden, Unavailable):
                await SystemClock().sleep(0.05)
            else:
                return


@pytest.mark.real
async def test_on_a_real_control_plane_hollow_nodes_are_ready_and_run_scheduled_pods(
    control_plane: ControlPlane,
) -> None:
    async with HttpClient(load_kubeconfig({}, path=control_plane.kubeconfig).rest_config, random.Random(1)) as cluster:
        namespace = "hollow"
        await cluster.create(NAMESPACES, {"metadata": {"name": namespace}})
        names = [f"hollow-{number}" for number in range(3)]
        settings = HollowSettings(names=names, labels={"test": "hollow"}, seconds=0)
        running = asyncio.create_task(HollowKubelet(cluster, settings, SystemClock()).run())
        pod = pod_json("p", container_json(), nodeName="", nodeSelector={"test": "hollow"}, restartPolicy="Never")
        pod["metadata"]["namespace"] = namespace
        pods = Informer(cluster, PODS, SystemClock(), Selector(namespace=namespace), jitter=random.Random(1))
        ended = asyncio.Event()
        pods.add_event_handler(lambda _key, _old, new: ended.set() if new is not None and new.is_finished else None)
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
        await cluster.delete(PODS, Key(namespace, "p"), DeleteOptions(grace_period_seconds=0))
    assert over.status.phase == "Succeeded"
    assert over.spec.node_name in names
    assert all(node.is_ready for node in nodes.values())


async def test_a_pod_that_does_not_fit_is_rejected_until_another_pod_ends(hollow: HollowWorld) -> None:
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


async def test_hollow_nodes_have_ephemeral_storage(hollow: HollowWorld) -> None:
    await hollow.begin()
    await hollow.create("p", container_json(resources={"limits": {"ephemeral-storage": "1Gi"}}))

    await hollow.phase("Running", "p")


async def test_another_hollow_kubelet_counts_the_requests_of_running_pods(hollow: HollowWorld) -> None:
    await hollow.begin(capacity={"cpu": 1000, "pods": 9000})
    whole = container_json(resources={"requests": {"cpu": "1"}})
    await hollow.create("first", whole)
    await hollow.phase("Running", "first")
    await hollow.end()
    await hollow.create("second", whole)
    await hollow.begin(capacity={"cpu": 1000, "pods": 9000})

    assert (await hollow.phase("Failed", "second"))["status"]["reason"] == "OutOfcpu"


GPUS = {"pods": 10**9, "nvidia.com/gpu": 2000}


async def share(hollow: HollowWorld, name: str, request: float, **options: Any) -> None:
    await hollow.create(name, metadata=shared_metadata(request, **options))


async def test_a_vgpu_that_is_oversold_is_noticed(hollow: HollowWorld) -> None:
    await hollow.begin(capacity=GPUS, labels={"nvidia.com/gpu.memory": "16384"})
    for name, request in (("one", 0.5), ("two", 0.3)):
        await share(hollow, name, request, vgpu=0)
        await hollow.phase("Running", name)
    await share(hollow, "three", 0.3, vgpu=0)
    compute = await hollow.phase("Failed", "three")
    await share(hollow, "four", 0.1, vgpu=0, memory=4 * GI)
    memory = await hollow.phase("Failed", "four")

    assert compute["status"]["reason"] == memory["status"]["reason"] == "OutOfnvidia.com/gpu"
    assert compute["status"]["message"].endswith(
        "vGPU 0 does not have enough left, requested: 0.3, used: 0.8, capacity: 1"
    )
    assert memory["status"]["message"].endswith("memory left, requested: 4Gi, used: 12.8Gi, capacity: 16Gi")


async def test_vgpus_and_whole_gpus_together_are_not_more_than_a_hollow_node_has(hollow: HollowWorld) -> None:
    whole = container_json(resources={"limits": {"nvidia.com/gpu": 1}})
    await hollow.begin(capacity=GPUS)
    await share(hollow, "shared", 0.1, vgpu=5)
    await hollow.phase("Running", "shared")
    await hollow.create("whole", whole)
    await hollow.phase("Running", "whole")
    await hollow.create("second", whole)
    await hollow.phase("Failed", "second")
    await share(hollow, "other", 0.1, vgpu=6)
    refused = await hollow.phase("Failed", "other")
    await hollow.delete("shared")
    await hollow.vanished("shared")
    await share(hollow, "third", 0.1, vgpu=6)
    await hollow.phase("Running", "third")

    assert refused["status"]["message"] == "Pod was rejected: no GPU is free for vGPU 6, requested: 0.1"


async def test_another_hollow_kubelet_counts_the_shares_of_running_pods(hollow: HollowWorld) -> None:
    await hollow.begin(capacity=GPUS)
    await share(hollow, "one", 0.6, vgpu=0)
    await hollow.phase("Running", "one")
    await hollow.end()
    await share(hollow, "two", 0.6, vgpu=0)
    await share(hollow, "three", 0.6)
    await hollow.begin(capacity=GPUS)

    assert (await hollow.phase("Failed", "two"))["status"]["reason"] == "OutOfnvidia.com/gpu"
    await hollow.phase("Running", "three")


async def test_hollow_nodes_have_no_share_for_a_number_that_is_none(hollow: HollowWorld) -> None:
    await hollow.begin(capacity=GPUS)
    await share(hollow, "one", 0.6, vgpu="x")

    assert "'x'" in (await hollow.phase("Failed", "one"))["status"]["message"]
