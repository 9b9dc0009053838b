"""Repeated kill -9 of the background server while clients write and watch."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tarragon.client.errors import ApiError
from tarragon.client.http.client import HttpClient
from tarragon.client.informer.informer import Informer
from tarragon.client.port import Selector
from tarragon.kube.core import CONFIG_MAPS
from tarragon.kube.meta import Key, PartialObjectMetadata
from tests.lifecycle.background import CLOCK, a_home, client, eventually, killed, up

WRITTEN = Selector(field_selector="metadata.name!=kube-root-ca.crt")
"""All objects except those that the cluster creates in every namespace."""


class Witness:
    """A client that writes as fast as it can and watches. It records acknowledged writes and received events."""

    def __init__(self, cluster: HttpClient) -> None:
        self.cluster = cluster
        self.promised: set[str] = set()
        self.tried: set[str] = set()
        self.changes: list[tuple[str, bool, bool]] = []
        self.cache = Informer(cluster, CONFIG_MAPS, CLOCK, WRITTEN, jitter=random.Random(1))
        self.cache.add_event_handler(self._note)

    def _note(self, key: Key, old: PartialObjectMetadata | None, new: PartialObjectMetadata | None) -> None:
        self.changes.append((key.name, old is not None, new is not None))

    async def write(self, name: str) -> None:
        self.tried.add(name)
        metadata = {"name": name, "namespace": "default"}
        try:
            await self.cluster.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        except ApiError:
            return
        self.promised.add(name)

    async def promised_more(self, count: int) -> None:
        enough = len(self.promised) + count
        await eventually(lambda: len(self.promised) >= enough)

    async def write_on(self, prefix: str) -> None:
        number = 0
        while True:
            await asyncio.gather(*(self.write(f"{prefix}-{number + each}") for each in range(8)))
            number += 8


async def kill_and_count(folder: Path, times: int, dice: random.Random) -> None:
    async with a_home(folder) as home:
        server = await up(home)
        async with client(home, server) as cluster:
            witness = Witness(cluster)
            watching = asyncio.create_task(witness.cache.run())
            await witness.cache.wait_for_sync()
            for round_ in range(times):
                writing = asyncio.create_task(witness.write_on(f"round-{round_}"))
                await witness.promised_more(dice.randint(1, 200))
                await killed(server)
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
                server = await up(home)
            there = {item.metadata.name for item in (await cluster.list(CONFIG_MAPS, WRITTEN)).items}
            await eventually(lambda: len(witness.cache.objects) == len(there))
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    assert witness.promised <= there <= witness.tried
    assert len(witness.changes) == len(there), "each was told of once"
    assert all(change == (change[0], False, True) for change in witness.changes)


async def test_acknowledged_writes_of_a_killed_server_are_kept_and_watched_once(tmp_path: Path) -> None:
    await kill_and_count(tmp_path, 4, random.Random(4))


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_a_hundred_kills_lose_no_write_and_repeat_no_event(tmp_path: Path) -> None:
    await kill_and_count(tmp_path, 100, random.Random())
