"""The kubelet with a failing API, disk or machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from structlog.testing import capture_logs

from tarragon.base.clock import FakeClock
from tarragon.client.errors import Forbidden, unavailable
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import ALL_OBJECTS, DEFAULT_DELETE, DeleteOptions, ObjectList, Selector, WatchEvent
from tarragon.kube.core import SERVICES
from tarragon.kube.meta import Key, Resource
from tarragon.localcluster.kubelet.base.files import write_json
from tarragon.localcluster.kubelet.network.ports import ALLOCATIONS_FILE, PortAllocation, allocated_ports
from tests.localcluster.kubelet.builders import container_json
from tests.localcluster.kubelet.waiting import eventually
from tests.localcluster.kubelet.world import ANY_POD, Json, World, state, terminated


class Line(DelegatingClient):
    """A client that can be disconnected, can fail status writes, and counts writes."""

    def __init__(self, world: World) -> None:
        super().__init__(world.cluster)
        self.is_cut = False
        self.refuses_status = False
        self.statuses: list[tuple[str, Json]] = []
        self._cuts = asyncio.Event()

    def cut(self) -> None:
        self.is_cut = True
        self._cuts.set()

    def mend(self) -> None:
        self.is_cut = False
        self._cuts.clear()

    def _check(self) -> None:
        if self.is_cut:
            raise unavailable("the line is cut")

    async def get(self, resource: Resource[Any], key: Key) -> Any:
        self._check()
        return await super().get(resource, key)

    async def list(self, resource: Resource[Any], selection: Selector = ALL_OBJECTS) -> ObjectList[Any]:
        self._check()
        return await super().list(resource, selection)

    async def watch(self, resource: Resource[Any], selection: Selector, since: str) -> AsyncIterator[WatchEvent[Any]]:
        self._check()
        events = super().watch(resource, selection, since)
        cut = asyncio.ensure_future(self._cuts.wait())
        try:
            while True:
                following = asyncio.ensure_future(anext(events, None))
                await asyncio.wait({following, cut}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    following.cancel()
                    await asyncio.gather(following, return_exceptions=True)
                self._check()
                event = following.result()
                if event is None:
                    return
                yield event
        finally:
            cut.cancel()

    async def create(self, resource: Resource[Any], body: Mapping[str, Any]) -> Any:
        self._check()
        return await super().create(resource, body)

    async def patch(self, resource: Resource[Any], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> Any:
        self._check()
        if resource.plural == "pods" and subresource == "status":
            if self.refuses_status:
                raise Forbidden({"code": 403, "reason": "Forbidden", "message": "no"})
            self.statuses.append((key.name, dict(patch["status"])))
        return await super().patch(resource, key, patch, subresource=subresource)

    async def delete(self, resource: Resource[Any], key: Key, options: DeleteOptions = DEFAULT_DELETE) -> None:
        self._check()
        await super().delete(resource, key, options)


async def test_a_status_is_written_once_per_change(world: World) -> None:
    line = Line(world)
    world.start_kubelet(cluster=line)
    go = world.folder / "go"
    await world.run(f"until [ -e {go} ]; do sleep 0.01; done", restartPolicy="Never")
    await world.phase("Running")
    go.touch()
    await world.phase("Succeeded")
    await world.stop_kubelet()
    world.start_kubelet(cluster=line)
    await world.run("true", "other", restartPolicy="Never")
    await world.phase("Succeeded", "other")

    assert [status["phase"] for name, status in line.statuses if name == "p"] == ["Running", "Succeeded"]


async def test_only_changed_parts_of_a_status_are_written(world: World) -> None:
    line = Line(world)
    world.start_kubelet(cluster=line)
    go = world.folder / "go"
    await world.run(f"until [ -e {go} ]; do sleep 0.01; done", restartPolicy="Never")
    await world.phase("Running")
    go.touch()

    await world.phase("Succeeded")

    assert line.statuses[0][1].keys() >= {"phase", "startTime", "podIP", "containerStatuses", "conditions"}
    assert line.statuses[-1][1].keys() == {"phase", "containerStatuses", "conditions"}


async def test_containers_run_on_while_the_api_is_unavailable_and_are_reported_later(world: World) -> None:
    clock = FakeClock()
    line = Line(world)
    world.start_kubelet(clock, cluster=line)
    go = world.folder / "go"
    await world.run(f"echo ready; until [ -e {go} ]; do sleep 0.01; done; exit 8", restartPolicy="Never")
    await world.says("ready")
    await world.phase("Running")

    line.cut()
    go.touch()
    await eventually(lambda: not world.processes())
    assert (await world.get())["status"]["phase"] == "Running"
    line.mend()
    ended = asyncio.ensure_future(world.phase("Failed"))
    while not ended.done():
        clock.advance(1)
        await asyncio.wait({ended}, timeout=0.02)

    assert terminated(await ended)["exitCode"] == 8


async def test_after_a_conflict_the_pod_is_read_again_and_other_conditions_stay(world: World) -> None:
    world.start_kubelet()
    go = world.folder / "go"
    await world.run(f"until [ -e {go} ]; do sleep 0.01; done", restartPolicy="Never")
    pod = await world.phase("Running")
    other = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    conditions = [*pod["status"]["conditions"], other]

    await world.cluster.patch(
        ANY_POD, Key("default", "p"), {"status": {"conditions": conditions}}, subresource="status"
    )
    go.touch()
    pod = await world.phase("Succeeded")

    assert other in pod["status"]["conditions"]


async def test_a_pod_marked_failed_by_another_client_is_ended(world: World) -> None:
    world.start_kubelet()
    await world.run("echo ready; while :; do sleep 0.05; done")
    await world.says("ready")

    evicted = {"status": {"phase": "Failed", "reason": "Evicted"}}
    await world.cluster.patch(ANY_POD, Key("default", "p"), evicted, subresource="status")
    pod = await world.until(lambda pod: "terminated" in state(pod))

    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "Evicted")
    assert world.processes() == set()


async def test_a_rejected_status_is_retried_without_affecting_other_pods(world: World) -> None:
    clock = FakeClock()
    line = Line(world)
    world.start_kubelet(clock, cluster=line)
    line.refuses_status = True
    done = world.folder / "done"
    await world.run(f"touch {done}", restartPolicy="Never")
    await eventually(done.exists)

    line.refuses_status = False
    ended = asyncio.ensure_future(world.phase("Succeeded"))
    while not ended.done():
        clock.advance(1)
        await asyncio.wait({ended}, timeout=0.02)


async def test_ports_that_a_full_disk_keeps_from_being_freed_are_freed_later(world: World) -> None:
    clock = FakeClock()
    world.start_kubelet(clock)
    service = {"metadata": {"name": "ps", "namespace": "default"}, "spec": {"ports": [{"port": 2222}]}}
    await world.cluster.create(SERVICES, service)
    mention = {"env": [{"name": "PS", "value": "ps.default.svc:2222"}]}
    await world.run("true", "first", container=mention, restartPolicy="Never")
    await world.phase("Succeeded", "first")
    await world.delete("first")
    await world.vanished("first")
    assert allocated_ports(world.node.parent)

    with full_disk_for_ports(world), capture_logs() as lines:
        await world.cluster.delete(SERVICES, Key("default", "ps"))
        await eventually(lambda: PORTS_KEPT in [line["event"] for line in lines])
        await world.run("true", restartPolicy="Never")
        await world.phase("Succeeded")

    await ports_freed(world, clock)


async def test_a_kubelet_starts_on_a_disk_too_full_to_release_the_ports_of_vanished_pods(world: World) -> None:
    clock = FakeClock()
    vanished = PortAllocation(namespace="default", name="ps", port=2222, local=20000, users=("n/gone",))
    world.node.parent.mkdir()
    write_json(world.node.parent / ALLOCATIONS_FILE, [vanished])

    with full_disk_for_ports(world), capture_logs() as lines:
        world.start_kubelet(clock)
        await eventually(lambda: PORTS_KEPT in [line["event"] for line in lines])
        await world.run("true", restartPolicy="Never")
        await world.phase("Succeeded")

    await ports_freed(world, clock)


async def test_a_kubelet_starts_on_a_full_disk_with_the_programs_of_its_last_start(world: World) -> None:
    world.start_kubelet()
    await world.run("true", "first", restartPolicy="Never")
    await world.phase("Succeeded", "first")
    await world.stop_kubelet()
    for program in ("shim.pyc", "processes.pyc", "rsh/agent.pyc"):
        (world.node / f"{program}.new").mkdir()  # every write of the program fails

    world.start_kubelet()
    await world.run("$TARRAGON_RSH; true", restartPolicy="Never")
    await world.phase("Succeeded")

    assert await world.log() == "tarragon-rsh: usage: ssh [--container NAME] HOST [COMMAND...]\n"


PORTS_KEPT = "the kubelet cannot maintain its files"


@contextlib.contextmanager
def full_disk_for_ports(world: World) -> Iterator[None]:
    """A folder in the place of the temporary file, as on a full disk every write fails."""
    temporary = world.node.parent / f"{ALLOCATIONS_FILE}.new"
    temporary.mkdir()
    yield
    temporary.rmdir()


async def ports_freed(world: World, clock: FakeClock) -> None:
    freed = asyncio.ensure_future(eventually(lambda: not allocated_ports(world.node.parent)))
    while not freed.done():
        clock.advance(1)
        await asyncio.wait({freed}, timeout=0.02)
    await freed


async def test_a_shim_that_cannot_start_is_reported_as_a_start_error(world: World) -> None:
    world.start_kubelet()
    await world.run("true", "first", restartPolicy="Never")
    await world.phase("Succeeded", "first")
    (world.node / "shim.pyc").write_bytes(b"not a program")

    await world.run("true", restartPolicy="Never")
    pod = await world.phase("Failed")

    assert terminated(pod)["reason"] == "StartError"
    assert terminated(pod)["message"].startswith("the supervisor of the container could not start: ")


async def test_ignored_fields_of_a_pod_are_reported(world: World) -> None:
    world.start_kubelet()
    fields = {"securityContext": {"runAsUser": 12345, "privileged": True}}
    await world.create("p", container_json(**fields), restartPolicy="Never", hostAliases=[{"ip": "1.2.3.4"}])
    await world.phase("Succeeded")

    words = (
        "hostAliases: ignored, as processes share this machine; "
        "container main: privileged of its securityContext: ignored, as processes run with your permissions; "
        f"container main: runs as user {os.getuid()}, who started this node, not as 12345 (runAsUser)"
    )
    assert ("NotCarriedOut", words) in await world.events()


async def test_a_search_domain_of_the_cluster_is_no_ignored_field_for_names_resolve_without_it(world: World) -> None:
    world.start_kubelet()
    domains = {"searches": ["pi.d.svc.cluster.local"]}
    await world.create("p", container_json(), restartPolicy="Never", dnsConfig=domains)
    await world.phase("Succeeded")

    assert not [message for reason, message in await world.events() if reason == "NotCarriedOut"]
