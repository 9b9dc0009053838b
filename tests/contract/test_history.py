from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tarragon.base.clock import SystemClock
from tarragon.client.errors import ResourceExpired, Unavailable
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.client.port import Client, Selector
from tarragon.kube.core import CONFIG_MAPS, NAMESPACES
from tarragon.kube.meta import Key
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.registry.client import InProcessCluster
from tarragon.localcluster.storage.store import HistoryWindow
from tests.contract.objects import PATIENCE, WHOLE_CONFIG_MAPS, config_map, watching
from tests.localcluster.apiserver.embedded import embedded
from tools.controlplane import ControlPlane

NO_HISTORY = HistoryWindow(seconds=0)


@dataclass(frozen=True)
class Forgetful:
    """A cluster that forgets on demand. `compact`: what is on disk. `forget`: what watches are served from, too."""

    cluster: Client
    compact: Callable[[], Awaitable[None]]
    forget: Callable[[], Awaitable[None]]


@asynccontextmanager
async def in_process(request: pytest.FixtureRequest) -> AsyncIterator[Forgetful]:
    folder: Path = request.getfixturevalue("tmp_path")
    api = await Api.open(folder / "store.db", SystemClock(), NO_HISTORY)
    try:
        yield Forgetful(InProcessCluster(api), api.maintain_once, api.maintain_once)
    finally:
        await api.close()


@asynccontextmanager
async def over_http(request: pytest.FixtureRequest) -> AsyncIterator[Forgetful]:
    async with embedded(request.getfixturevalue("tmp_path"), window=NO_HISTORY) as running, running.client() as client:
        yield Forgetful(client, running.api.maintain_once, running.api.maintain_once)


@asynccontextmanager
async def real(request: pytest.FixtureRequest) -> AsyncIterator[Forgetful]:
    """Its API server serves watches from memory: only one that was started anew knows no more than etcd."""
    plane: ControlPlane = request.getfixturevalue("own_control_plane")

    async def compact() -> None:
        await asyncio.to_thread(plane.compact)

    async def forget() -> None:
        await compact()
        await asyncio.to_thread(plane.kill, "kube-apiserver")
        await asyncio.to_thread(plane.restart, "kube-apiserver")

    async with HttpClient(load_kubeconfig({}, path=plane.kubeconfig).rest_config, random.Random(1)) as client:
        yield Forgetful(client, compact, forget)


IMPLEMENTATIONS = {"in process": in_process, "http": over_http, "real": real}


@pytest.fixture(params=["in process", "http", pytest.param("real", marks=[pytest.mark.real, pytest.mark.slow])])
async def forgetful(request: pytest.FixtureRequest) -> AsyncIterator[Forgetful]:
    async with IMPLEMENTATIONS[request.param](request) as made:
        yield made


async def a_namespace(cluster: Client) -> str:
    name = f"history-{uuid.uuid4().hex[:12]}"
    await cluster.create(NAMESPACES, {"metadata": {"name": name}})
    return name


async def test_a_watch_from_a_version_that_is_forgotten_is_expired(forgetful: Forgetful) -> None:
    cluster = forgetful.cluster
    namespace = await a_namespace(cluster)
    old = (await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))).metadata.resource_version
    await cluster.delete(CONFIG_MAPS, Key(namespace, "a"))
    await cluster.create(CONFIG_MAPS, config_map(namespace, "b"))

    await forgetful.forget()
    await _answers(cluster)

    with pytest.raises(ResourceExpired):
        async with watching(cluster, WHOLE_CONFIG_MAPS, Selector(namespace), old) as seen:
            await seen.next()


async def test_who_lists_anew_after_that_misses_nothing(forgetful: Forgetful) -> None:
    cluster = forgetful.cluster
    namespace = await a_namespace(cluster)
    await cluster.create(CONFIG_MAPS, config_map(namespace, "before"))

    await forgetful.forget()
    await _answers(cluster)
    listing = await cluster.list(CONFIG_MAPS, Selector(namespace, field_selector="metadata.name=before"))
    chosen = Selector(namespace, field_selector="metadata.name=after")
    async with watching(cluster, WHOLE_CONFIG_MAPS, chosen, listing.resource_version) as seen:
        await cluster.create(CONFIG_MAPS, config_map(namespace, "after"))
        kind, _ = await seen.next()

    assert [one.metadata.name for one in listing.items] == ["before"]
    assert kind == "ADDED"


@pytest.mark.slow
async def test_a_list_is_whole_although_its_moment_is_forgotten_between_two_pages(forgetful: Forgetful) -> None:
    cluster = forgetful.cluster
    namespace = await a_namespace(cluster)
    names = [f"c-{number:04}" for number in range(1_600)]
    for start in range(0, len(names), 100):
        batch = (config_map(namespace, name, labels={"of": "me"}) for name in names[start : start + 100])
        await asyncio.gather(*(cluster.create(CONFIG_MAPS, body) for body in batch))
    done = asyncio.Event()

    async def forget_all_the_time() -> None:
        number = 0
        while not done.is_set():
            number += 1
            await cluster.create(CONFIG_MAPS, config_map(namespace, f"other-{number}"))
            await forgetful.compact()

    forgetting = asyncio.create_task(forget_all_the_time())
    listings = [await cluster.list(CONFIG_MAPS, Selector(namespace, label_selector="of=me")) for _ in range(5)]
    done.set()
    await forgetting

    assert [[one.metadata.name for one in listing.items] == names for listing in listings] == [True] * 5


async def _answers(cluster: Client) -> None:
    """A connection of before may turn out to be dead at its next use."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(Unavailable):
                await cluster.list(NAMESPACES)
                return
