"""Watches that are open and withhold changes: noticed by the server's answers to writes, and replaced."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.base.clock import SystemClock
from tarragon.client.http.client import HttpClient
from tarragon.client.http.transport import RestConfig
from tarragon.client.informer.cache_reader import LostWatch
from tarragon.client.informer.informer import DEAF_AFTER_SECONDS, MAX_DEAF_SECONDS, Informer
from tarragon.client.informer.multi_namespace_cache import MultiNamespaceCache
from tarragon.kube.codec import encode
from tarragon.kube.core import CONFIG_MAPS
from tarragon.kube.meta import Key
from tests.client.deaf_proxy import deaf_proxy
from tests.client.scripted import ScriptedCluster, settle
from tests.client.test_informer import STEPS, Scene, Step
from tests.localcluster.apiserver.embedded import TOKEN, embedded


class DeafScene(Scene):
    def __init__(self) -> None:
        super().__init__()
        self.lost: list[LostWatch] = []
        self.cache.on_lost_watch(self.lost.append)

    def write(self, name: str, value: int) -> None:
        """Our own write, and its answer."""
        self.server.put(name, value)
        self.cache.apply_write(self.server.answer(name))

    async def wait(self, seconds: float) -> None:
        """As time passes for a process that is not busy: bit by bit."""
        await settle(self.clock)
        for _ in range(round(seconds * 4)):
            await self.pass_time(0.25)

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.server.calls]


async def test_a_watch_that_withholds_what_the_server_has_answered_is_replaced_within_a_second() -> None:
    scene = DeafScene()
    scene.server.put("a", 1)
    async with scene.running():
        scene.server.lose_watches()
        scene.server.put("b", 2)
        scene.write("a", 2)
        await scene.wait(DEAF_AFTER_SECONDS - 0.25)
        assert scene.seen_changes == [("a", None, 1), ("a", 1, 2)]

        await scene.wait(0.25)

        assert scene.seen_changes == [("a", None, 1), ("a", 1, 2), ("b", None, 2)]
        assert scene.verbs == ["list", "watch", "watch"]
        assert scene.lost == [LostWatch("things.example.org", "deaf", DEAF_AFTER_SECONDS)]


async def test_a_watch_that_brings_what_was_answered_goes_on_however_long_others_write() -> None:
    scene = DeafScene()
    async with scene.running():
        for value in range(30):
            scene.write("a", value)
            await scene.wait(DEAF_AFTER_SECONDS * 1.5)

        assert scene.seen_changes[-1] == ("a", 28, 29)
        assert scene.verbs == ["list", "watch"]
        assert scene.lost == []


async def test_a_watch_that_brings_other_changes_is_slow_and_not_deaf() -> None:
    """A thousand objects made at once: what the server answered long ago is still behind what it delivers."""
    scene = DeafScene()
    async with scene.running():
        late = ScriptedCluster()
        for number in range(40):
            late.put(f"a{number}", number)
        scene.cache.apply_write(late.answer("a39"))
        for number in range(40):
            scene.server.put(f"a{number}", number)
            await scene.wait(DEAF_AFTER_SECONDS * 0.75)

        assert len(scene.cache.objects) == 40
        assert scene.verbs == ["list", "watch"]
        assert scene.lost == []


async def test_a_server_that_is_silent_for_long_is_asked_for_few_new_watches() -> None:
    scene = DeafScene()
    ahead = ScriptedCluster()
    ahead.put("a", 1)
    async with scene.running():
        scene.cache.apply_write(ahead.answer("a"))
        await scene.wait(20)
        assert [lost.seconds for lost in scene.lost] == [1, 2, 4, 8]

        scene.server.put("a", 1)
        await scene.wait(MAX_DEAF_SECONDS)
        assert scene.verbs == ["list", *["watch"] * 5]

        scene.server.lose_watches()
        scene.write("a", 2)
        await scene.wait(DEAF_AFTER_SECONDS)

    # It had caught up: the next one is noticed as fast as the first one was.
    assert scene.lost[-1].seconds == DEAF_AFTER_SECONDS
    assert scene.verbs == ["list", *["watch"] * 6]


async def test_seconds_in_which_this_process_read_nothing_are_not_silence() -> None:
    scene = DeafScene()
    async with scene.running():
        scene.server.lose_watches()
        scene.write("a", 1)
        await settle(scene.clock)
        await scene.pass_time(600)

        assert scene.lost == []
        await scene.wait(DEAF_AFTER_SECONDS)
        assert len(scene.lost) == 1


async def test_a_bookmark_is_no_sign_of_hearing_and_what_came_before_it_is_not_lost() -> None:
    """The watch that is deaf to changes tells that the version went on: a watch from there would miss them."""
    scene = DeafScene()
    async with scene.running():
        scene.server.put_unseen("of others", 1)
        scene.server.bookmark()
        await settle(scene.clock)
        assert scene.seen_changes == []
        scene.server.lose_watches()
        scene.write("a", 1)
        await scene.wait(DEAF_AFTER_SECONDS)

        assert scene.cache.objects.keys() == scene.server.values.keys()
        assert scene.server.calls == [("list", ""), ("watch", "100"), ("watch", "100")]


async def test_a_watch_that_passes_the_version_of_an_answer_without_its_change_is_followed_by_a_list() -> None:
    for pass_by in (ScriptedCluster.bookmark, lambda server: server.put("c", 3)):
        scene = DeafScene()
        async with scene.running():
            scene.server.put_unseen("b", 2)
            scene.server.put_unseen("a", 1)
            scene.cache.apply_write(scene.server.answer("a"))
            pass_by(scene.server)
            await scene.wait(DEAF_AFTER_SECONDS)

            assert scene.cache.objects.keys() == scene.server.values.keys()
            assert scene.lost == [LostWatch("things.example.org", "gap", lists_again=True)]
            assert scene.verbs == ["list", "watch", "list", "watch"]


async def test_when_the_history_does_not_reach_back_to_the_last_change_everything_is_listed() -> None:
    scene = DeafScene()
    async with scene.running():
        scene.server.lose_watches()
        scene.server.put("b", 1)
        scene.write("a", 1)
        scene.server.forget()
        await scene.wait(DEAF_AFTER_SECONDS + 1)

        assert scene.cache.objects.keys() == scene.server.values.keys()
        assert scene.verbs == ["list", "watch", "watch", "list", "watch"]


async def test_a_watch_that_ends_while_it_is_in_doubt_leaves_the_doubt_to_the_next_one() -> None:
    scene = DeafScene()
    ahead = ScriptedCluster()
    ahead.put("a", 1)
    async with scene.running():
        await scene.wait(60)
        scene.cache.apply_write(ahead.answer("a"))
        await scene.wait(DEAF_AFTER_SECONDS / 2)
        scene.server.cut_now()
        await settle(scene.clock)
        scene.server.lose_watches()
        scene.server.put("a", 1)
        scene.server.put("b", 1)
        await scene.wait(DEAF_AFTER_SECONDS)

        assert scene.cache.objects.keys() == scene.server.values.keys()
        assert scene.verbs == ["list", "watch", "watch", "watch"]


async def test_what_a_server_does_not_know_any_more_after_its_storage_was_put_back_is_let_go_of() -> None:
    scene = DeafScene()
    async with scene.running():
        before = scene.server.version
        scene.server.lose_watches()
        scene.write("a", 1)
        scene.server.put_back(before)
        await scene.wait(2 * MAX_DEAF_SECONDS)
        await scene.wait(2 * MAX_DEAF_SECONDS)

    assert scene.seen_changes == [("a", None, 1), ("a", 1, None)]
    assert scene.verbs == ["list", *["watch"] * 5, "list", "watch"]
    assert scene.lost[-1] == LostWatch("things.example.org", "deaf", MAX_DEAF_SECONDS, lists_again=True)


async def test_every_namespace_reports_its_own() -> None:
    one, other = DeafScene(), DeafScene()
    both: list[LostWatch] = []
    MultiNamespaceCache({"default": one.cache, "other": other.cache}).on_lost_watch(both.append)
    async with one.running(), other.running():
        one.server.lose_watches()
        one.write("a", 1)
        await one.wait(DEAF_AFTER_SECONDS)

    assert both == one.lost != []


def _lose(scene: Scene) -> None:
    scene.server.lose_watches()


async def _play(scene: DeafScene, steps: list[Step | float]) -> None:
    async with scene.running():
        for step in steps:
            if isinstance(step, float):
                await scene.pass_time(step)
            else:
                step(scene)
        for _ in range(2 * len(steps) + 2):
            await scene.pass_time(40)
        scene.write("last", 1)
        for _ in range(40):
            await scene.pass_time(40)


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(st.one_of(STEPS, st.just(_lose)), max_size=30))
def test_after_a_write_the_cache_is_as_the_server_whatever_watches_went_deaf(steps: list[Step | float]) -> None:
    scene = DeafScene()
    asyncio.run(_play(scene, steps))

    held = {key: (thing.metadata.uid, thing.value) for key, thing in scene.cache.objects.items()}
    assert held == scene.server.values


async def test_over_http_what_changes_after_a_watch_went_deaf_is_seen_by_the_next_one(tmp_path: Path) -> None:
    clock = SystemClock()
    async with (
        embedded(tmp_path) as running,
        deaf_proxy(running.at()) as proxy,
        HttpClient(RestConfig(url=proxy.url, token=TOKEN), random.Random(1)) as http,
        running.client() as others,
    ):
        cache = Informer(http, CONFIG_MAPS.with_model(dict), clock, jitter=random.Random(1))
        lost: list[LostWatch] = []
        cache.on_lost_watch(lost.append)
        changes: asyncio.Queue[Key] = asyncio.Queue()
        watching = asyncio.create_task(cache.run())

        async def sees(name: str) -> None:
            while (await changes.get()).name != name:
                pass

        async def write(client: HttpClient, name: str) -> bytes:
            body = {"metadata": {"name": name, "namespace": "default"}}
            return encode(await client.create(CONFIG_MAPS.with_model(dict), body))

        await cache.wait_for_sync()
        cache.add_event_handler(lambda key, _old, _new: changes.put_nowait(key))
        await write(others, "seen")
        async with asyncio.timeout(20):
            await sees("seen")
        proxy.deafen()
        await write(others, "unseen")
        ours = await write(http, "ours")
        began = clock.monotonic()
        cache.apply_write(ours)
        async with asyncio.timeout(20):
            await sees("unseen")
        took = clock.monotonic() - began
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    assert took >= DEAF_AFTER_SECONDS
    assert lost[0].reason == "deaf"
