from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from tarragon.base.clock import ManualClock
from tarragon.client.errors import Forbidden
from tarragon.client.informer.cache_reader import Index, Live
from tarragon.client.informer.multi_namespace_cache import Joined, joined
from tarragon.client.informer.reflector import Cache
from tarragon.kube.meta import Key
from tests.client.scripted import THINGS, ScriptedCluster, Thing, error, settle


class Two:
    """Two servers stand for two namespaces of one: what happens to one does not happen to the other."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.a, self.b = ScriptedCluster("a"), ScriptedCluster("b")
        self.live: Live[Thing] = joined({"a": self._cache(self.a), "b": self._cache(self.b)})

    def _cache(self, server: ScriptedCluster) -> Cache[Thing]:
        return Cache(server, THINGS, self.clock, jitter=random.Random(1))


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    scene = Two()
    task = asyncio.create_task(scene.live.run())
    yield scene
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_objects_of_all_namespaces_are_one_mapping(two: Two) -> None:
    two.a.put("x", 1)
    two.b.put("x", 2)
    await settle(two.clock)

    assert {key: thing.value for key, thing in two.live.objects.items()} == {Key("a", "x"): 1, Key("b", "x"): 2}
    assert len(two.live.objects) == 2
    assert two.live.objects.get(Key("elsewhere", "x")) is None


async def test_subscribers_and_indexes_hear_of_each(two: Two) -> None:
    changed: list[Key] = []
    two.live.subscribe(lambda key, _old, _new: changed.append(key))
    index = Index(two.live, lambda thing: [str(thing.value)])
    two.a.put("x", 7)
    two.b.put("y", 7)
    await settle(two.clock)

    assert changed == [Key("a", "x"), Key("b", "y")]
    assert index.keys("7") == {Key("a", "x"), Key("b", "y")}


async def test_an_answer_is_learnt_by_the_cache_of_its_namespace_alone(two: Two) -> None:
    changed: list[Key] = []
    two.live.subscribe(lambda key, _old, _new: changed.append(key))
    await settle(two.clock)
    two.a.put("x", 1)
    two.live.learn(two.a.answer("x"))
    elsewhere = ScriptedCluster("elsewhere")
    elsewhere.put("x", 1)
    two.live.learn(elsewhere.answer("x"))

    assert changed == [Key("a", "x")]


async def test_it_is_synced_when_the_last_one_is() -> None:
    two = Two()
    two.b.fail_list(error(403, "Forbidden"))
    running, waiting = asyncio.create_task(two.live.run()), asyncio.create_task(two.live.synced())
    await settle(two.clock)

    assert not waiting.done()
    assert isinstance(two.live.failing.error if two.live.failing else None, Forbidden)
    two.clock.advance(1)
    await settle(two.clock)
    assert waiting.done()
    assert two.live.is_synced
    assert two.live.failing is None
    running.cancel()


def test_one_namespace_needs_no_joining() -> None:
    cache = Cache(ScriptedCluster(), THINGS, ManualClock(), jitter=random.Random(1))

    assert joined({"a": cache}) is cache
    assert isinstance(Two().live, Joined)
