from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tarragon.base.clock import SystemClock
from tarragon.base.errors import TarragonError
from tarragon.client.port import ALL_OBJECTS, Client
from tarragon.kube.core import CONFIG_MAPS, NAMESPACES, PODS, SERVICE_ACCOUNTS, Pod
from tarragon.kube.meta import Key
from tarragon.localcluster.daemon.cluster import BackgroundCoroutine, LocalCluster, LocalClusterSettings
from tarragon.localcluster.home.home import Home

CLOCK = SystemClock()


def in_home(folder: Path) -> LocalClusterSettings:
    home = Home(folder / "home")
    home.prepare()
    return LocalClusterSettings(home=home)


@asynccontextmanager
async def running(settings: LocalClusterSettings, *companions: BackgroundCoroutine) -> AsyncIterator[LocalCluster]:
    cluster = await LocalCluster.start(settings, CLOCK)
    cluster.run_companions(companions)
    try:
        yield cluster
    finally:
        await cluster.stop()


async def test_a_started_cluster_has_its_namespaces_and_its_controllers_work(tmp_path: Path) -> None:
    async with running(in_home(tmp_path)) as cluster:
        listing = await cluster.client.list(NAMESPACES)
        assert "default" in {item.metadata.name for item in listing.items}

        async with asyncio.timeout(60):
            async for event in cluster.client.watch(SERVICE_ACCOUNTS, ALL_OBJECTS, "0"):
                if event.object and event.object.metadata.key == Key("default", "default"):
                    break


async def test_companions_work_in_the_clusters_process_and_end_with_it(tmp_path: Path) -> None:
    seen: list[str] = []
    begun = asyncio.Event()

    async def companion(cluster: Client) -> None:
        seen.append((await cluster.get(NAMESPACES, Key("", "default"))).metadata.name)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("ended")

    async with running(in_home(tmp_path), companion):
        async with asyncio.timeout(60):
            await begun.wait()
    assert seen == ["default", "ended"]


async def test_what_has_to_be_prepared_is_there_before_the_cluster_is(tmp_path: Path) -> None:
    async def prepare(cluster: Client) -> None:
        await cluster.create(CONFIG_MAPS, {"metadata": {"name": "prepared", "namespace": "default"}})

    settings = in_home(tmp_path)
    async with running(LocalClusterSettings(home=settings.home, prepare=prepare)) as cluster:
        assert (await cluster.client.get(CONFIG_MAPS, Key("default", "prepared"))).metadata.name == "prepared"


async def test_a_start_that_fails_leaves_nothing_running_and_the_store_free(tmp_path: Path) -> None:
    async def fail(_: Client) -> None:
        raise TarragonError("no")

    settings = in_home(tmp_path)
    before = asyncio.all_tasks()
    with pytest.raises(TarragonError, match="no"):
        await LocalCluster.start(LocalClusterSettings(home=settings.home, prepare=fail), CLOCK)
    assert asyncio.all_tasks() == before

    async with running(settings):
        pass
    assert asyncio.all_tasks() == before


async def test_two_clusters_in_two_homes_know_nothing_of_each_other(tmp_path: Path) -> None:
    async with running(in_home(tmp_path / "a")) as one, running(in_home(tmp_path / "b")) as other:
        await one.client.create(CONFIG_MAPS, {"metadata": {"name": "mine", "namespace": "default"}})

        assert one.url != other.url
        there = (await other.client.list(CONFIG_MAPS)).items
        assert "mine" not in [each.metadata.name for each in there]


async def test_a_home_that_cannot_be_written_is_told_in_words(tmp_path: Path) -> None:
    settings = in_home(tmp_path)
    (settings.home.folder / "ca.key").mkdir()

    with pytest.raises(TarragonError, match="can't keep the cluster's state"):
        await LocalCluster.start(settings, CLOCK)


async def test_pods_that_are_left_over_do_not_keep_a_cluster_busy(tmp_path: Path) -> None:
    async def is_left_over(_: Client, pod: Pod) -> bool:
        return pod.metadata.name == "left"

    async def created(cluster: LocalCluster, name: str) -> None:
        spec = {"containers": [{"name": "m", "image": "i"}]}
        await cluster.client.create(PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})

    settings = LocalClusterSettings(home=in_home(tmp_path).home, left_over=is_left_over)
    async with running(settings) as cluster:
        await created(cluster, "left")
        was_busy = await cluster.is_busy()
        await created(cluster, "wanted")

        assert not was_busy
        assert await cluster.is_busy()
