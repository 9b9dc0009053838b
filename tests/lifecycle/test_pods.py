"""Pods as processes, while their server is stopped, killed and restarted."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tarragon.base.errors import TarragonError
from tarragon.client.http.client import HttpClient
from tarragon.client.port import ALL_OBJECTS
from tarragon.kube.core import NODES, PODS, Pod
from tarragon.kube.meta import Key, PartialObjectMetadata, Resource
from tarragon.localcluster.daemon.background import STOP_PODS_SIGNAL, stop
from tarragon.localcluster.daemon.nodes import stop_leftover_pods
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import process_start
from tests.lifecycle.background import CLOCK, a_home, client, eventually, killed, up

# $$$$: the kubelet expands $(VAR), and replaces $$ by $.
STEADY = "trap 'exit 0' TERM; echo $$$$ > pid; echo begun; while :; do sleep 0.1; done"


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with a_home(tmp_path) as home:
        try:
            yield home
        finally:
            await stop(home, CLOCK, STOP_PODS_SIGNAL)


def pod(name: str, script: str, folder: Path, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "any", "command": ["sh", "-c", script], "workingDir": str(folder)}
    whole = {"containers": [container], "restartPolicy": "Never", **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": whole}


async def seen(cluster: HttpClient, name: str, *phases: str) -> Pod:
    """Wait until the pod is in one of these phases."""
    listing = await cluster.list(PODS)
    for one in listing.items:
        if one.metadata.name == name and one.status.phase in phases:
            return one
    async for event in cluster.watch(PODS, ALL_OBJECTS, listing.resource_version):
        if event.object and event.object.metadata.name == name and event.object.status.phase in phases:
            return event.object
    raise AssertionError("the watch has ended")


async def running_process(folder: Path) -> tuple[int, str]:
    pid = int(await eventually(lambda: (folder / "pid").exists() and (folder / "pid").read_text().strip()))
    return pid, process_start(pid)


async def test_a_pod_survives_a_killed_server_and_the_next_one_gets_its_exit_code(home: Home, tmp_path: Path) -> None:
    server = await up(home, "node=here")
    async with client(home, server) as cluster:
        script = f"{STEADY.replace('while :', 'while [ ! -e done ]')}; echo ended; exit 7"
        await cluster.create(PODS, pod("one", script, tmp_path))
        before = await seen(cluster, "one", "Running")
        pid, born = await running_process(tmp_path)
        await killed(server)
        assert process_start(pid) == born

        await up(home, "node=here")
        (tmp_path / "done").touch()
        after = await seen(cluster, "one", "Failed", "Succeeded")
        log = b"".join([chunk async for chunk in cluster.pod_log(Key("default", "one"))])

    assert after.metadata.uid == before.metadata.uid
    assert after.status.container_statuses[0].restart_count == 0
    terminated = after.status.container_statuses[0].state.terminated
    assert terminated is not None
    assert terminated.exit_code == 7
    assert log == b"begun\nended\n"


async def test_the_next_server_reports_a_pod_that_ended_without_a_server(home: Home, tmp_path: Path) -> None:
    server = await up(home, "node=here")
    async with client(home, server) as cluster:
        await cluster.create(PODS, pod("one", STEADY.replace("while :", "while [ ! -e done ]"), tmp_path))
        pid, born = await running_process(tmp_path)
        await stop(home, CLOCK, signal.SIGTERM)
        assert process_start(pid) == born, "SIGTERM is for the server, not for the pods"

        (tmp_path / "done").touch()
        await eventually(lambda: process_start(pid) != born)
        await up(home, "node=here")
        assert (await seen(cluster, "one", "Failed", "Succeeded")).status.phase == "Succeeded"


async def test_end_pods_stops_every_process_gracefully_and_reports_it(home: Home, tmp_path: Path) -> None:
    server = await up(home, "node=here")
    async with client(home, server) as cluster:
        script = STEADY.replace("exit 0", "sleep 0.3; touch farewell; exit 0")
        await cluster.create(PODS, pod("one", script, tmp_path))
        pid, _ = await running_process(tmp_path)
        await stop(home, CLOCK, STOP_PODS_SIGNAL)

        assert process_start(pid) == ""
        assert (tmp_path / "farewell").exists()
        await up(home, "node=here")
        ended = await seen(cluster, "one", "Failed", "Succeeded")
    assert ended.status.phase == "Failed"
    assert ended.status.reason == "Terminated"


async def test_pods_of_a_killed_server_can_be_stopped_without_a_server(home: Home, tmp_path: Path) -> None:
    server = await up(home, "node=here")
    async with client(home, server) as cluster:
        await cluster.create(PODS, pod("one", STEADY.replace("exit 0", "touch farewell; exit 3"), tmp_path))
        pid, _ = await running_process(tmp_path)
        with pytest.raises(TarragonError, match="already running"):
            await stop_leftover_pods(home, CLOCK)
        await killed(server)
        await stop_leftover_pods(home, CLOCK)
        await stop_leftover_pods(home, CLOCK)  # a second call has nothing to do

        assert process_start(pid) == ""
        assert (tmp_path / "farewell").exists()
        await up(home, "node=here")
        ended = await seen(cluster, "one", "Failed", "Succeeded")
    terminated = ended.status.container_statuses[0].state.terminated
    assert terminated is not None
    assert terminated.exit_code == 3


async def test_a_server_whose_home_is_removed_stops_with_its_pods(home: Home, tmp_path: Path) -> None:
    server = await up(home, "node=here")
    async with client(home, server) as cluster:
        await cluster.create(PODS, pod("one", STEADY, tmp_path))
    pid, born = await running_process(tmp_path)
    home.folder.rename(tmp_path / "thrown away")

    await eventually(lambda: not server.is_running())
    await eventually(lambda: process_start(pid) != born)
    assert "the home was removed" in (tmp_path / "thrown away" / "daemon.log").read_text()
    assert (await up(home)).pid != server.pid, "and another one can begin in its place"


async def test_pods_of_a_removed_node_are_stopped_and_deleted(home: Home, tmp_path: Path) -> None:
    await up(home, "node=former")
    server = await up(home)
    async with client(home, server) as cluster:
        await cluster.create(PODS, pod("one", STEADY, tmp_path))
        pid, born = await running_process(tmp_path)
    await stop(home, CLOCK, signal.SIGTERM)
    assert process_start(pid) == born

    server = await up(home, "node=new")
    await eventually(lambda: process_start(pid) != born)
    async with client(home, server) as cluster:
        await gone(cluster, NODES, "former")
        await gone(cluster, PODS, "one")
        assert [node.metadata.name for node in (await cluster.list(NODES)).items] == ["new"]


async def gone(cluster: HttpClient, resource: Resource[Any], name: str) -> None:
    listing = await cluster.list(resource.with_model(PartialObjectMetadata))
    if name not in {item.metadata.name for item in listing.items}:
        return
    async for event in cluster.watch(resource.with_model(PartialObjectMetadata), ALL_OBJECTS, listing.resource_version):
        if event.type == "DELETED" and event.object and event.object.metadata.name == name:
            return


async def test_a_running_pod_prevents_the_idle_timeout_until_it_ends(home: Home, tmp_path: Path) -> None:
    server = await up(home, "node=here", "idle=10")
    async with client(home, server) as cluster:
        await cluster.create(PODS, pod("one", STEADY.replace("while :", "while [ ! -e done ]"), tmp_path))
    await running_process(tmp_path)
    with pytest.raises(AssertionError, match="has not come true"):
        await eventually(lambda: not server.is_running(), seconds=15)

    (tmp_path / "done").touch()
    await eventually(lambda: not server.is_running())


async def test_processes_of_pods_do_not_hold_the_lock_of_the_home(home: Home, tmp_path: Path) -> None:
    server = await up(home, "node=here")
    async with client(home, server) as cluster:
        await cluster.create(PODS, pod("one", STEADY, tmp_path))
    pid, born = await running_process(tmp_path)
    await killed(server)

    assert process_start(pid) == born
    assert (await up(home, "node=here")).pid != server.pid
    assert os.getsid(pid) != os.getsid(0)
