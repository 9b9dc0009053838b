from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from tarragon.base.clock import FakeClock
from tarragon.client.backoff import INITIAL_DELAY, MAX_DELAY
from tarragon.client.errors import ApiError, Forbidden, Unavailable
from tarragon.client.informer.cache_reader import CacheRecovery
from tarragon.client.informer.informer import Informer
from tarragon.kube.meta import Key
from tests.client.scripted import THINGS, ScriptedCluster, Thing, error, settle

FORBIDDEN = error(403, "Forbidden")
SILENT = error(503, "ServiceUnavailable")


class Scene:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.server = ScriptedCluster()
        self.cache: Informer[Thing] = Informer(self.server, THINGS, self.clock, jitter=random.Random(1))
        self.tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        self.tasks.append(asyncio.create_task(self.cache.run()))
        await settle(self.clock)

    @property
    def error(self) -> type[ApiError] | None:
        return None if self.cache.failure is None else type(self.cache.failure.error)

    async def tries_again(self) -> None:
        """Once: the pause after that is longer."""
        self.clock.advance(INITIAL_DELAY)
        await settle(self.clock)

    async def pass_time(self) -> None:
        self.clock.advance(MAX_DELAY)
        await settle(self.clock)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    yield scene
    for task in scene.tasks:
        task.cancel()
    await asyncio.gather(*scene.tasks, return_exceptions=True)


async def test_a_server_that_answers_does_not_fail(scene: Scene) -> None:
    await scene.begin()

    assert scene.cache.has_synced
    assert scene.error is None


async def test_that_it_answers_again_is_told_once_and_after_how_long(scene: Scene) -> None:
    recoveries: list[CacheRecovery] = []
    scene.cache.on_recovery(recoveries.append)
    scene.server.fail_list(SILENT)
    scene.server.fail_list(SILENT)
    await scene.begin()
    await scene.pass_time()
    assert recoveries == []

    await scene.pass_time()
    scene.server.put("a", 1)
    await scene.pass_time()

    assert [str(each) for each in recoveries] == ["things.example.org: the server responds again after 60.0 s"]


async def test_since_when_it_fails_is_known_and_forgotten_when_it_answers(scene: Scene) -> None:
    began = scene.clock.monotonic()
    for _ in range(2):
        scene.server.fail_list(SILENT)
    await scene.begin()
    await scene.tries_again()

    assert scene.error is Unavailable
    assert scene.cache.failure is not None
    assert scene.cache.failure.since == began
    await scene.pass_time()
    assert scene.error is None


async def test_silence_takes_nothing_of_a_refusal_back(scene: Scene) -> None:
    began = scene.clock.monotonic()
    for failure in (FORBIDDEN, SILENT):
        scene.server.fail_list(failure)
    await scene.begin()
    await scene.tries_again()

    assert scene.error is Forbidden
    assert scene.cache.failure is not None
    assert scene.cache.failure.since == began


async def test_a_refusal_after_silence_is_a_refusal(scene: Scene) -> None:
    for failure in (SILENT, FORBIDDEN):
        scene.server.fail_list(failure)
    await scene.begin()
    await scene.tries_again()

    assert scene.error is Forbidden


async def test_a_watch_that_is_forbidden_lists_anew_and_tells_what_went_meanwhile(scene: Scene) -> None:
    scene.server.put("a", 1)
    await scene.begin()
    recoveries: list[tuple[Key, bool]] = []
    scene.cache.add_event_handler(lambda key, _old, new: recoveries.append((key, new is not None)))
    scene.server.fail_list(FORBIDDEN)
    scene.server.cut_now(FORBIDDEN)
    await settle(scene.clock)
    scene.server.remove("a")
    await scene.tries_again()

    assert scene.error is Forbidden
    await scene.pass_time()
    assert scene.error is None
    assert recoveries == [(Key("default", "a"), True), (Key("default", "a"), False)]
