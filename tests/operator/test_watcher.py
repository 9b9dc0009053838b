from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tarragon.base.clock import FakeClock
from tarragon.client.errors import Forbidden, unavailable
from tarragon.kube.codec import format_micro_time
from tarragon.kube.core import LEASES
from tarragon.operator.coexistence.watcher import (
    CHECK_SECONDS,
    REFUSED_SECONDS,
    RETRY_SECONDS,
    CoexistenceWatcher,
)
from tests.localcluster.controllers.world import EmbeddedCluster, a_world

THEIRS = "mpi-operator"


class Door:
    """Counts the looks, and lets nobody in while a test says so."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.refuses: Exception | None = None
        self.asked = 0
        self.under_way = 0

    async def list(self, *what: Any) -> Any:
        self.asked += 1
        if self.refuses is not None:
            raise self.refuses
        self.under_way += 1
        try:
            return await self._client.list(*what)
        finally:
            self.under_way -= 1


class Scene:
    def __init__(self, world: EmbeddedCluster) -> None:
        self.world = world
        self.clock = FakeClock()
        self.door = Door(world.client)
        self.told: list[Mapping[str, str]] = []
        cluster: Any = self.door
        self.lookout = CoexistenceWatcher(cluster, self.clock, self.told.append)

    async def someone_leads(self) -> None:
        lease = {
            "metadata": {"name": THEIRS, "namespace": "default"},
            "spec": {"holderIdentity": "theirs", "renewTime": format_micro_time(self.clock.now())},
        }
        await self.world.client.create(LEASES, lease)

    async def looks_after(self, seconds: float) -> None:
        asked = self.door.asked
        self.clock.advance(seconds)
        async with asyncio.timeout(60):
            while self.door.asked == asked or self.door.under_way:
                await self.world.clock.sleep(0.005)
        for _ in range(20):
            await self.clock.sleep(0)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with a_world(tmp_path) as world:
        yield Scene(world)


async def test_who_leads_is_told_once_and_who_has_stopped_is_told_to_have(scene: Scene) -> None:
    await scene.someone_leads()
    await scene.lookout.first_check()
    looking = asyncio.create_task(scene.lookout.run())
    told = {"MPIJob": "mpi-operator (Lease default/mpi-operator, held by theirs)"}
    assert scene.told == [told]

    await scene.world.client.patch(
        LEASES,
        (await scene.world.client.list(LEASES)).items[0].metadata.key,
        {"spec": {"renewTime": "2030-01-01T00:00:00.000000Z"}},
    )
    await scene.looks_after(CHECK_SECONDS)
    assert scene.told == [told]
    await scene.looks_after(CHECK_SECONDS)
    assert scene.told == [told, {}]

    looking.cancel()
    with suppress(asyncio.CancelledError):
        await looking


async def test_nobody_is_not_worth_a_word(scene: Scene) -> None:
    await scene.lookout.first_check()
    assert scene.told == []


async def test_nothing_is_decided_before_a_look_was_answered(scene: Scene) -> None:
    await scene.someone_leads()
    scene.door.refuses = unavailable("the server is busy")
    first = asyncio.create_task(scene.lookout.first_check())
    await scene.looks_after(0)
    assert not first.done()

    scene.door.refuses = None
    await scene.looks_after(RETRY_SECONDS)
    async with asyncio.timeout(60):
        await first
    assert [list(told) for told in scene.told] == [["MPIJob"]]


async def test_who_may_not_look_goes_on_without(scene: Scene) -> None:
    scene.door.refuses = Forbidden({"code": 403, "reason": "Forbidden", "message": "not for you"})
    await scene.lookout.first_check()
    assert scene.told == []


async def test_what_may_not_be_listed_is_asked_for_again_after_an_hour(scene: Scene) -> None:
    scene.door.refuses = Forbidden({"code": 403, "reason": "Forbidden", "message": "not for you"})
    await scene.lookout.first_check()
    asked = scene.door.asked

    for _ in range(3):
        scene.clock.advance(REFUSED_SECONDS / 4)
        await scene.lookout.first_check()
    assert scene.door.asked == asked

    scene.clock.advance(REFUSED_SECONDS / 4)
    scene.door.refuses = None
    await scene.someone_leads()
    await scene.lookout.first_check()
    assert [list(told) for told in scene.told] == [["MPIJob"]]
