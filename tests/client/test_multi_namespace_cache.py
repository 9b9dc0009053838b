from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from tarragon.base.clock import FakeClock
from tarragon.client.errors import Forbidden
from tarragon.client.informer.cache_reader import CacheReader, KeyIndex
from tarragon.client.informer.informer import Informer
from tarragon.client.informer.multi_namespace_cache import MultiNamespaceCache, combine_caches
from tarragon.kube.meta import Key
from tests.client.scripted import THINGS, ScriptedCluster, Thing, error, settle


class Two:
    """Two servers stand for two namespaces of one: what happens to one does not happen to the other."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.a, self.b = ScriptedCluster("a"), ScriptedCluster("b")
        self.live: CacheReader[Thing] = combine_caches({"a": self._cache(self.a), "b": self._cache(self.b)})

    def _cache(self, server: ScriptedCluster) -> Informer[Thing]:
        return Informer(server, THINGS, self.clock, jitter=random.Random(1))


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
    two.live.add_event_handler(lambda key, _old, _new: changed.append(key))
    index = KeyIndex(two.live, lambda thing: [str(thing.value)])
    two.a.put("x", 7)
    two.b.put("y", 7)
    await settle(two.clock)

    assert changed == [Key("a", "x"), Key("b", "y")]
    assert index.keys("7") == {Key("a", "x"), Key("b", "y")}


async def test_an_answer_is_learnt_by_the_cache_of_its_namespace_alone(two: Two) -> None:
    changed: list[Key] = []
    two.live.add_event_handler(lambda key, _old, _new: changed.append(key))
    await settle(two.clock)
    two.a.put("x", 1)
    two.live.apply_write(two.a.answer("x"))
    elsewhere = ScriptedCluster("elsewhere")
    elsewhere.put("x", 1)
    two.live.apply_write(elsewhere.answer("x"))

    assert changed == [Key("a", "x")]


async def test_it_is_synced_when_the_last_one_is() -> None:
    two = Two()
    two.b.fail_list(error(403, "Forbidden"))
    running, waiting = asyncio.create_task(two.live.run()), asyncio.create_task(two.live.wait_for_sync())
    await settle(two.clock)

    assert not waiting.done()
    assert isinstance(two.live.failure.error if two.live.failure else None, Forbidden)
    two.clock.advance(1)
    await settle(two.clock)
    assert waiting.done()
    assert two.live.has_synced
    assert two.live.failure is None
    running.cancel()


def test_one_namespace_needs_no_joining() -> None:
    cache = Informer(ScriptedCluster(), THINGS, FakeClock(), jitter=random.Random(1))

    assert combine_caches({"a": cache}) is cache
    assert isinstance(Two().live, MultiNamespaceCache)
