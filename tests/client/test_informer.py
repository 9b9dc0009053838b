from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.base.clock import FakeClock
from tarragon.client.errors import BadRequest
from tarragon.client.informer.cache_reader import CacheError, KeyIndex
from tarragon.client.informer.informer import DEAF_AFTER_SECONDS, Informer
from tarragon.client.port import ALL_OBJECTS, Selector
from tarragon.kube.meta import Key
from tests.client.scripted import THINGS, Cut, ScriptedCluster, Thing, error, settle

Told = list[tuple[str, int | None, int | None]]
A = Key("default", "a")


class Scene:
    """A cache that runs against a scripted server; `seen_changes` is what a subscriber heard, by value."""

    def __init__(self, selection: Selector = ALL_OBJECTS) -> None:
        self.server = ScriptedCluster()
        self.clock = FakeClock()
        self.cache = Informer(self.server, THINGS, self.clock, selection, jitter=random.Random(1))
        self.answers: dict[str, bytes] = {}
        self.changes: list[tuple[Key, Thing | None, Thing | None]] = []
        self.troubles: list[CacheError] = []
        self.cache.add_event_handler(lambda key, old, new: self.changes.append((key, old, new)))
        self.cache.on_error(self.troubles.append)

    @property
    def seen_changes(self) -> Told:
        return [(key.name, _value(old), _value(new)) for key, old, new in self.changes]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Scene]:
        task = asyncio.create_task(self.cache.run())
        try:
            await settle(self.clock)
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await settle(self.clock)


def _value(thing: Thing | None) -> int | None:
    return None if thing is None else thing.value


async def test_what_is_there_and_what_comes_is_told_once() -> None:
    scene = Scene()
    scene.server.put("a", 1)
    async with scene.running():
        scene.server.put("a", 2)
        scene.server.put("b", 7)
        scene.server.remove("a")
        await settle(scene.clock)

    assert scene.seen_changes == [("a", None, 1), ("a", 1, 2), ("b", None, 7), ("a", 2, None)]
    assert list(scene.cache.objects) == [Key("default", "b")]


async def test_synced_returns_when_the_first_list_is_taken_in_and_not_before() -> None:
    scene = Scene()
    scene.server.put("a", 1)
    scene.server.fail_list(error(503, "ServiceUnavailable"))
    waiting = asyncio.create_task(scene.cache.wait_for_sync())
    async with scene.running():
        assert scene.seen_changes == []
        assert not waiting.done()

        await scene.pass_time(1)

        await waiting
        assert A in scene.cache.objects


async def test_a_watch_that_ends_cleanly_goes_on_at_the_last_version_without_a_list() -> None:
    scene = Scene()
    async with scene.running():
        scene.server.put("a", 1)
        await scene.pass_time(60)
        scene.server.cut_now()
        await settle(scene.clock)
        scene.server.put("a", 2)
        await settle(scene.clock)

    assert scene.server.calls == [("list", ""), ("watch", "100"), ("watch", "101")]
    assert scene.seen_changes == [("a", None, 1), ("a", 1, 2)]


async def test_a_bookmark_moves_the_version_on() -> None:
    scene = Scene()
    async with scene.running():
        scene.server.bookmark()
        await scene.pass_time(60)
        scene.server.forget()
        scene.server.cut_now()
        await settle(scene.clock)

        assert scene.server.calls[-1] == ("watch", "101")
        assert scene.server.watchers == 1


async def test_watches_that_end_at_once_are_not_asked_for_in_a_hot_loop() -> None:
    scene = Scene()
    for _ in range(1000):
        scene.server.cut_watch(Cut(0))
    async with scene.running():
        for _ in range(60):
            await scene.pass_time(1)

    assert 4 <= len(scene.server.calls) <= 10


@pytest.mark.parametrize("in_stream", [False, True], ids=["refused at once", "thrown in the middle"])
async def test_after_an_expired_version_deletes_made_meanwhile_are_told(in_stream: bool) -> None:  # noqa: FBT001
    scene = Scene()
    for name in "abc":
        scene.server.put(name, 1)
    async with scene.running():
        scene.server.cut_now(error(410, "Expired") if in_stream else error(503, "ServiceUnavailable"))
        await settle(scene.clock)
        scene.server.remove("a")
        scene.server.put("b", 2)
        scene.server.forget()
        await scene.pass_time(1)
        await scene.pass_time(2)

    assert scene.seen_changes[3:] == [("a", 1, None), ("b", 1, 2)]
    assert {key.name for key in scene.cache.objects} == {"b", "c"}


async def test_an_object_replaced_while_nobody_looked_is_told_as_gone_and_as_new() -> None:
    scene = Scene()
    scene.server.put("a", 1)
    async with scene.running():
        scene.server.cut_now(error(410, "Expired"))
        await settle(scene.clock)
        scene.server.remove("a")
        scene.server.put("a", 9)
        await scene.pass_time(1)

    assert scene.seen_changes == [("a", None, 1), ("a", 1, None), ("a", None, 9)]


async def test_a_broken_connection_loses_and_repeats_nothing() -> None:
    scene = Scene()
    async with scene.running():
        scene.server.put("a", 1)
        scene.server.cut_now(error(503, "ServiceUnavailable"))
        await settle(scene.clock)
        scene.server.put("a", 2)
        await scene.pass_time(1)

    assert scene.seen_changes == [("a", None, 1), ("a", 1, 2)]
    # The second list has no objects: it shows that the server's history goes on from where it was.
    assert [call for call, _ in scene.server.calls] == ["list", "watch", "list", "watch"]


async def test_pauses_double_up_to_half_a_minute_and_are_short_again_after_a_quiet_while() -> None:
    scene = Scene()
    for _ in range(9):
        scene.server.fail_list(error(503, "ServiceUnavailable"))
    async with scene.running():
        for _ in range(30):
            await scene.pass_time(10)
        pauses = [trouble.retry_after for trouble in scene.troubles]
        await scene.pass_time(200)
        scene.server.cut_now(error(503, "ServiceUnavailable"))
        await settle(scene.clock)

    for pause, step in zip(pauses, [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30], strict=True):
        assert step / 2 <= pause <= step
    assert len(set(pauses)) == 9
    assert scene.troubles[-1].retry_after <= 0.8


async def test_retry_after_is_honoured() -> None:
    scene = Scene()
    scene.server.fail_list(error(429, "TooManyRequests", retry_after=17))
    async with scene.running():
        await scene.pass_time(16.9)
        assert len(scene.server.calls) == 1

        await scene.pass_time(0.2)
        assert scene.cache.has_synced


async def test_a_kind_that_is_not_there_yet_is_waited_for() -> None:
    scene = Scene()
    scene.server.put("a", 1)
    for _ in range(20):
        scene.server.fail_list(error(404, "NotFound"))
    async with scene.running():
        assert not scene.cache.has_synced

        for _ in range(50):
            await scene.pass_time(2)

        assert scene.seen_changes == [("a", None, 1)]
        assert max(trouble.retry_after for trouble in scene.troubles) <= 5


async def test_one_object_that_cannot_be_read_does_not_stop_the_world() -> None:
    scene = Scene()
    scene.server.put("a", "no number")
    scene.server.put("b", 1)
    async with scene.running():
        scene.server.put("b", {"neither": "this"})
        scene.server.put("c", 1)
        scene.server.put("a", 5)
        await settle(scene.clock)

    assert scene.seen_changes == [("b", None, 1), ("c", None, 1), ("a", None, 5)]
    assert [str(trouble.key) for trouble in scene.troubles] == ["default/a", "default/b"]
    assert "things.example.org default/a can't be decoded" in str(scene.troubles[0])
    assert len(scene.server.calls) == 2


async def test_an_unreadable_object_that_replaced_a_readable_one_takes_it_away() -> None:
    scene = Scene()
    scene.server.put("a", 1)
    async with scene.running():
        scene.server.remove("a")
        scene.server.put("a", "no number")
        scene.server.remove("a")
        await settle(scene.clock)

    assert scene.seen_changes == [("a", None, 1), ("a", 1, None)]


async def test_a_handler_that_raises_ends_the_run_and_closes_the_watch() -> None:
    scene = Scene()

    def fail(_key: Key, _old: Thing | None, new: Thing | None) -> None:
        if new is not None and new.value == 2:
            raise ZeroDivisionError

    scene.cache.add_event_handler(fail)
    task = asyncio.create_task(scene.cache.run())
    await settle(scene.clock)
    scene.server.put("a", 2)
    with pytest.raises(ZeroDivisionError):
        await task
    assert scene.server.watchers == 0


async def test_a_cancelled_run_closes_its_watch() -> None:
    scene = Scene()
    async with scene.running():
        assert scene.server.watchers == 1

    assert scene.server.watchers == 0


def lose(server: ScriptedCluster) -> None:
    server.lose_watches()


def cut(server: ScriptedCluster) -> None:
    server.cut_now(error(503, "ServiceUnavailable"))


@pytest.mark.parametrize("before_the_watch_brings_it", [lose, cut])
async def test_a_handler_that_raises_at_an_answer_ends_the_run_and_is_nothing_to_the_writer(
    before_the_watch_brings_it: Callable[[ScriptedCluster], None],
) -> None:
    scene = Scene()

    def fail(_key: Key, _old: Thing | None, new: Thing | None) -> None:
        raise ZeroDivisionError

    scene.cache.add_event_handler(fail)
    task = asyncio.create_task(scene.cache.run())
    await settle(scene.clock)
    before_the_watch_brings_it(scene.server)
    await settle(scene.clock)
    scene.server.put("a", 2)
    scene.cache.apply_write(scene.server.answer("a"))
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(task, 60)


async def test_a_selector_that_the_server_cannot_parse_is_raised_not_retried() -> None:
    scene = Scene()
    scene.server.fail_list(error(400, "BadRequest"))

    with pytest.raises(BadRequest):
        await scene.cache.run()


async def test_who_subscribes_late_hears_what_is_already_there() -> None:
    scene = Scene()
    scene.server.put("a", 1)
    late: list[tuple[Key, Thing | None]] = []
    async with scene.running():
        scene.cache.add_event_handler(lambda key, old, _new: late.append((key, old)))

    assert late == [(A, None)]


async def test_an_index_follows_the_objects() -> None:
    scene = Scene()
    by_parity = KeyIndex(scene.cache, lambda thing: ["odd" if thing.value % 2 else "even", "all"])
    async with scene.running():
        scene.server.put("a", 1)
        scene.server.put("b", 2)
        scene.server.put("c", 3)
        await settle(scene.clock)
        assert {key.name for key in by_parity.keys("odd")} == {"a", "c"}

        scene.server.put("a", 2)
        scene.server.remove("c")
        await settle(scene.clock)
        assert by_parity.keys("odd") == frozenset()
        assert {key.name for key in by_parity.keys("even")} == {"a", "b"}
        assert by_parity.count("all") == len(by_parity.keys("all")) == 2
        assert by_parity.count("odd") == 0


async def test_a_cache_of_whole_objects_holds_dicts() -> None:
    server, clock = ScriptedCluster(), FakeClock()
    cache = Informer(server, THINGS.with_model(dict), clock, jitter=random.Random(1))
    server.put("a", {"any": "shape"})
    task = asyncio.create_task(cache.run())
    await settle(clock)
    server.cut_now(error(410, "Expired"))
    await settle(clock)
    clock.advance(1)
    await settle(clock)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert cache.objects[A]["value"] == {"any": "shape"}


NAMES = st.sampled_from("abc")
ERRORS = st.sampled_from(
    [(503, "ServiceUnavailable"), (429, "TooManyRequests"), (500, "InternalError"), (410, "Expired")]
)
LIST_ERRORS = st.one_of(ERRORS, st.just((404, "NotFound")))
Step = Callable[[Scene], None]


def _cut(scene: Scene, after: int, failure: tuple[int, str] | None) -> None:
    scene.server.cut_watch(Cut(after, error(*failure) if failure else None))


def _write(scene: Scene, name: str, value: int) -> None:
    """By ourselves; the answer is under way."""
    scene.server.put(name, value)
    scene.answers[name] = scene.server.answer(name)


def _learn(scene: Scene, name: str) -> None:
    answer = scene.answers.pop(name, None)
    if answer is not None:
        scene.cache.apply_write(answer)


STEPS: st.SearchStrategy[Step | float] = st.one_of(
    st.builds(lambda name, value: lambda scene: _write(scene, name, value), NAMES, st.integers(0, 9)),
    st.builds(lambda name: lambda scene: _learn(scene, name), NAMES),
    st.builds(lambda name, value: lambda scene: scene.server.put(name, value), NAMES, st.integers(0, 9)),
    st.builds(lambda name, value: lambda scene: scene.server.put(name, value), NAMES, st.integers(0, 9)),
    st.builds(lambda name: lambda scene: scene.server.remove(name), NAMES),
    st.just(lambda scene: scene.server.bookmark()),
    st.just(lambda scene: scene.server.forget()),
    st.builds(lambda failure: lambda scene: scene.server.fail_list(error(*failure)), LIST_ERRORS),
    st.builds(lambda failure: lambda scene: scene.server.cut_now(error(*failure)), ERRORS),
    st.just(lambda scene: scene.server.cut_now()),
    st.builds(lambda after, failure: lambda scene: _cut(scene, after, failure), st.integers(0, 3), st.none() | ERRORS),
    st.floats(0, 40),
)


async def _play(scene: Scene, steps: list[Step | float]) -> None:
    async with scene.running():
        for step in steps:
            if isinstance(step, float):
                await scene.pass_time(step)
            else:
                step(scene)
        for _ in range(2 * len(steps) + 2):
            await scene.pass_time(40)


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(STEPS, max_size=30))
def test_whatever_breaks_and_when_the_cache_ends_as_the_server_and_each_object_tells_one_story(
    steps: list[Step | float],
) -> None:
    scene = Scene()
    asyncio.run(_play(scene, steps))

    held = {key: (thing.metadata.uid, thing.value) for key, thing in scene.cache.objects.items()}
    assert held == scene.server.values
    last: dict[Key, Thing | None] = {}
    for key, old, new in scene.changes:
        assert old is last.get(key), "each change begins where the one before ended"
        assert old is not new
        assert old is None or new is None or old.metadata.uid == new.metadata.uid
        last[key] = new
    assert {key: thing for key, thing in last.items() if thing is not None} == dict(scene.cache.objects)


async def test_what_the_server_has_answered_is_held_at_once_and_told_once() -> None:
    scene = Scene()
    async with scene.running():
        scene.server.put("a", 1)
        scene.cache.apply_write(scene.server.answer("a"))
        assert scene.seen_changes == [("a", None, 1)]
        scene.server.put("a", 2)
        scene.server.put("a", 3)
        scene.cache.apply_write(scene.server.answer("a"))
        await settle(scene.clock)

    assert scene.seen_changes == [("a", None, 1), ("a", 1, 3)]


async def test_the_end_of_an_object_is_no_news_of_the_one_that_was_made_after_it() -> None:
    scene = Scene()
    scene.server.put("a", 1)
    async with scene.running():
        scene.server.remove("a")
        scene.server.put("a", 2)
        scene.cache.apply_write(scene.server.answer("a"))
        await settle(scene.clock)
        scene.server.remove("a")
        await settle(scene.clock)

    assert scene.seen_changes == [("a", None, 1), ("a", 1, None), ("a", None, 2), ("a", 2, None)]


async def test_an_answer_that_comes_after_the_watch_changes_nothing() -> None:
    scene = Scene()
    async with scene.running():
        scene.server.put("a", 1)
        answer = scene.server.answer("a")
        scene.server.remove("a")
        await settle(scene.clock)
        scene.cache.apply_write(answer)

    assert scene.seen_changes == [("a", None, 1), ("a", 1, None)]


async def test_a_cache_of_what_selectors_choose_learns_nothing() -> None:
    scene = Scene(Selector(label_selector="app=x"))
    async with scene.running():
        scene.server.lose_watches()
        scene.server.put("a", 1)
        scene.cache.apply_write(scene.server.answer("a"))

    assert scene.seen_changes == []


async def test_after_an_outage_in_which_storage_was_put_back_everything_is_listed_anew() -> None:
    """A server accepts a watch from a version that it does not have yet, and is silent until it has."""
    scene = Scene()
    scene.server.put("kept", 1)
    async with scene.running():
        before = scene.server.version
        for value in range(5):
            scene.server.put("lost", value)
        await settle(scene.clock)
        scene.server.cut_now(error(503, "ServiceUnavailable"))
        scene.server.put_back(before)
        scene.server.put("new", 1)
        for _ in range(3):
            await scene.pass_time(5)

        assert {key.name for key in scene.cache.objects} == {"kept", "new"}
    assert str(scene.troubles[-1].error) == (
        "the server is at resourceVersion 102 and was at 106: etcd was restored from an older snapshot, so everything"
        " is listed again"
    )


async def test_after_storage_was_put_back_an_object_with_the_version_of_a_lost_one_is_taken_in() -> None:
    scene = Scene()
    scene.server.put("old", 1)
    async with scene.running():
        before = scene.server.version
        scene.server.put("a", 2)
        scene.server.put("b", 3)
        scene.cache.apply_write(scene.server.answer("b"))
        await settle(scene.clock)
        scene.server.cut_now(error(503, "ServiceUnavailable"))
        scene.server.put_back(before)
        scene.server.put("a", 77)
        await settle(scene.clock)
        scene.seen_changes.clear()
        await scene.pass_time(5)
        await scene.pass_time(5)

        assert scene.cache.objects[A].value == 77
        # It is another object of that name, with the same resourceVersion.
        assert ("a", None, 77) in scene.seen_changes
        calls = len(scene.server.calls)
        for _ in range(30):
            await scene.pass_time(DEAF_AFTER_SECONDS)
        # No version that the server has lost is waited for.
        assert len(scene.server.calls) == calls


async def test_an_object_without_a_readable_name_is_reported_and_hides_no_other() -> None:
    scene = Scene()
    scene.server.put_without_name("in the list")
    scene.server.put("a", 1)
    async with scene.running():
        scene.server.put_without_name("in the watch")
        scene.server.put("b", 2)
        await settle(scene.clock)

        assert scene.seen_changes == [("a", None, 1), ("b", None, 2)]
        assert ["can't be decoded and is ignored" in str(trouble) for trouble in scene.troubles] == [True, True]
