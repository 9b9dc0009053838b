"""A cache that begins with a streaming list, and one whose server has none."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
import pytest
from aiohttp import web

from tarragon.base.clock import FakeClock, SystemClock
from tarragon.client.errors import ApiError, error_from_status, unreachable
from tarragon.client.http.client import HttpClient
from tarragon.client.http.transport import RestConfig
from tarragon.client.informer.informer import Informer
from tarragon.client.port import ALL_OBJECTS, EventType, Selector, WatchEvent
from tarragon.kube.codec import encode
from tarragon.kube.core import PODS, Pod
from tarragon.kube.meta import Key, Resource
from tests.client.scripted import THINGS, ScriptedCluster, error, settle
from tests.client.test_informer import Scene
from tests.localcluster.apiserver.scripted_server import Answer, Script, in_turn, says, serving, streams

T = TypeVar("T")

NO_WATCH_PROGRESS = error_from_status(
    {
        "kind": "Status",
        "code": 500,
        "reason": "InternalError",
        "message": "Internal error occurred: a watch stream was requested by the client but the required storage "
        "feature RequestWatchProgress is disabled",
    }
)
"""What Kubernetes 1.32 and later send in an ERROR event on etcd before 3.4.31 and before 3.5.13."""

Event = WatchEvent[bytes]


def event(kind: EventType, name: str, version: int, value: object = 0) -> Event:
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": name, "resourceVersion": str(version)}
    return WatchEvent(kind, str(version), encode({"metadata": metadata, "value": value}))


def end(version: int) -> Event:
    return WatchEvent("BOOKMARK", str(version), None, ends_initial_events=True)


def streaming(*answers: Sequence[Event] | ApiError) -> Scene:
    scene = Scene()
    scene.server.streams = deque(answers)
    return scene


async def test_the_objects_of_a_stream_are_there_at_its_bookmark_and_the_watch_goes_on() -> None:
    first = [event("ADDED", "a", 7, 1), event("ADDED", "b", 9, 2), end(100), event("MODIFIED", "a", 101, 3)]
    scene = streaming(first)
    async with scene.running():
        assert scene.cache.has_synced
        assert scene.seen_changes == [("a", None, 1), ("b", None, 2), ("a", 1, 3)]

    # The stream has ended as watches do: no list, and no second stream.
    assert scene.server.calls == [("stream", ""), ("watch", "101")]


async def test_what_changes_before_the_bookmark_is_told_once_as_it_is_at_the_bookmark() -> None:
    early = [event("ADDED", "a", 7, 1), event("ADDED", "b", 9), event("MODIFIED", "a", 10, 2)]
    scene = streaming([*early, event("DELETED", "b", 11), end(12)])
    async with scene.running():
        assert scene.seen_changes == [("a", None, 2)]
        assert scene.cache.last_resource_version == 12


async def test_a_stream_that_breaks_off_shows_nothing_and_the_objects_are_listed() -> None:
    scene = streaming([event("ADDED", "gone", 7)])
    scene.server.put("a", 1)
    async with scene.running():
        assert [name for name, _, _ in scene.seen_changes] == ["a"]
        assert scene.server.calls[:2] == [("stream", ""), ("list", "")]


async def lose_history(scene: Scene) -> None:
    scene.server.forget()
    scene.server.put("later", 2)
    scene.server.forget()
    scene.server.cut_now(error(410, "Expired"))
    await settle(scene.clock)
    await scene.pass_time(60)


@pytest.mark.parametrize(
    "refusal",
    [
        error(422, "Invalid"),
        error(400, "BadRequest"),
        error(403, "Forbidden"),
        error(406, "NotAcceptable"),
        NO_WATCH_PROGRESS,
        error(504, "Timeout"),
    ],
    ids=lambda refusal: str(refusal.code),
)
async def test_a_server_that_refuses_a_stream_is_listed_at_once_and_never_asked_for_one_again(
    refusal: ApiError,
) -> None:
    scene = streaming(refusal)
    scene.server.put("a", 1)
    async with scene.running():
        assert scene.seen_changes == [("a", None, 1)]
        await lose_history(scene)

        assert sorted(scene.cache.objects) == sorted(scene.server.values)
    assert [call for call, _ in scene.server.calls] == ["stream", "list", "watch", "list", "watch"]
    assert {str(trouble.error) for trouble in scene.troubles} <= {"Expired"}


async def test_after_an_expired_version_a_stream_tells_what_was_deleted_meanwhile() -> None:
    scene = streaming(
        [event("ADDED", "a", 7, 1), event("ADDED", "b", 8, 2), end(100)], [event("ADDED", "b", 8, 2), end(200)]
    )
    async with scene.running():
        await scene.pass_time(60)
        scene.server.cut_now(error(410, "Expired"))
        await settle(scene.clock)
        await scene.pass_time(60)

    assert scene.seen_changes == [("a", None, 1), ("b", None, 2), ("a", 1, None)]
    assert [call for call, _ in scene.server.calls].count("list") == 0


@pytest.mark.parametrize(
    "failure",
    [
        error(401, "Unauthorized"),
        error(404, "NotFound"),
        error(410, "Expired"),
        error(429, "TooManyRequests"),
        error(503, "ServiceUnavailable"),
        unreachable("no route to host"),
    ],
    ids=lambda failure: f"{type(failure).__name__}",
)
async def test_a_server_that_only_fails_is_listed_at_once_and_asked_for_a_stream_the_next_time(
    failure: ApiError,
) -> None:
    scene = streaming(failure, [event("ADDED", "b", 7, 1), end(200)])
    scene.server.put("a", 1)
    async with scene.running():
        assert scene.seen_changes == [("a", None, 1)]
        await lose_history(scene)

        assert [key.name for key in scene.cache.objects] == ["b"]
    assert [call for call, _ in scene.server.calls][:4] == ["stream", "list", "watch", "stream"]


async def test_the_failure_of_the_list_is_the_one_that_is_reported() -> None:
    scene = streaming(error(403, "Forbidden"))
    scene.server.fail_list(error(503, "ServiceUnavailable"))
    scene.server.put("a", 1)
    async with scene.running():
        assert [str(trouble.error) for trouble in scene.troubles] == ["ServiceUnavailable"]
        await scene.pass_time(60)

        assert scene.seen_changes == [("a", None, 1)]
    assert [call for call, _ in scene.server.calls][:3] == ["stream", "list", "list"]


async def test_an_object_of_a_stream_that_cannot_be_read_is_reported_and_hides_no_other() -> None:
    nameless: Event = WatchEvent("ADDED", "8", encode({"metadata": {"name": 5}}))
    first = [event("ADDED", "a", 7, 1), nameless, event("ADDED", "b", 9, "no number"), event("ADDED", "c", 9, 3)]
    scene = streaming([*first, end(100)])
    async with scene.running():
        assert scene.cache.has_synced
        assert scene.seen_changes == [("a", None, 1), ("c", None, 3)]

    assert [str(trouble.key) for trouble in scene.troubles] == ["(without a name)", "default/b"]


async def test_in_a_second_stream_only_what_has_changed_is_told_and_the_unreadable_keeps_its_last_good_state() -> None:
    first = [event("ADDED", "a", 7, 1), event("ADDED", "b", 8, 2), event("ADDED", "c", 9, 3)]
    again = [event("ADDED", "a", 7, 1), event("ADDED", "b", 101, 5), event("ADDED", "c", 102, "no number")]
    scene = streaming([*first, end(100)], [*again, end(200)])
    async with scene.running():
        await scene.pass_time(60)
        held = scene.cache.objects[Key("default", "a")]
        scene.server.cut_now(error(410, "Expired"))
        await settle(scene.clock)
        await scene.pass_time(60)

        assert scene.cache.objects[Key("default", "a")] is held
        assert scene.cache.objects[Key("default", "c")].value == 3
    assert scene.seen_changes[3:] == [("b", 2, 5)]


async def test_another_object_that_cannot_be_read_takes_away_the_one_whose_name_it_has() -> None:
    other = {"name": "a", "namespace": "default", "uid": "other", "resourceVersion": "101"}
    unreadable: Event = WatchEvent("ADDED", "101", encode({"metadata": other, "value": "no number"}))
    scene = streaming([event("ADDED", "a", 7, 1), end(100)], [unreadable, end(200)])
    async with scene.running():
        await scene.pass_time(60)
        scene.server.cut_now(error(410, "Expired"))
        await settle(scene.clock)
        await scene.pass_time(60)

    assert scene.seen_changes == [("a", None, 1), ("a", 1, None)]


async def test_the_objects_of_a_stream_are_held_decoded_and_not_as_the_text_that_they_came_in() -> None:
    objects, size = 100, 100_000

    async def stream() -> AsyncIterator[WatchEvent[Any]]:
        for number in range(objects):
            metadata = {"name": f"o{number}", "namespace": "default", "uid": str(number), "resourceVersion": "1"}
            body = encode({"metadata": metadata, "value": number, "not read": "x" * size})
            yield WatchEvent("ADDED", "", msgspec.Raw(body))
        yield end(100)

    class Streams(ScriptedCluster):
        def stream_list(self, resource: Resource[T], _: Selector) -> AsyncIterator[WatchEvent[T]]:  # noqa: ARG002
            return stream()

    clock = FakeClock()
    cache = Informer(Streams(), THINGS, clock, jitter=random.Random(1))
    tracemalloc.start()
    task = asyncio.create_task(cache.run())
    await cache.wait_for_sync()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert len(cache.objects) == objects
    assert peak < objects * size / 5


async def test_over_http_the_initial_events_have_no_version_and_later_ones_do() -> None:
    def line(kind: str, **metadata: Any) -> bytes:
        return encode({"type": kind, "object": {"metadata": {"name": "a", **metadata}}}) + b"\n"

    bookmark = line("BOOKMARK", resourceVersion="9", annotations={"k8s.io/initial-events-end": "true"})
    changes = [line("ADDED", resourceVersion="7"), bookmark, line("MODIFIED", resourceVersion="10")]
    async with (
        serving(streams(*changes)) as script,
        HttpClient(RestConfig(url=script.url), random.Random(1)) as http,
    ):
        stream = http.stream_list(PODS, ALL_OBJECTS)
        assert stream is not None
        found = [each async for each in stream]

    versions = [(each.type, each.resource_version) for each in found]
    assert versions == [("ADDED", ""), ("BOOKMARK", "9"), ("MODIFIED", "10")]
    assert [each.ends_initial_events for each in found] == [False, True, False]


NO_STREAMS = says(
    {"kind": "Status", "code": 422, "reason": "Invalid", "message": "sendInitialEvents is forbidden"}, 422
)
EXPIRED = says({"kind": "Status", "code": 410, "reason": "Expired"}, 410)


def page(version: str, *names: str, more: str = "") -> Answer:
    items = [{"metadata": {"name": name, "namespace": "default", "resourceVersion": "7"}} for name in names]
    return says({"metadata": {"resourceVersion": version, "continue": more}, "items": items})


@asynccontextmanager
async def cache_of_pods(*answers: Answer) -> AsyncIterator[tuple[Informer[Pod], Script]]:
    """A cache over HTTP; after these answers, watches are silent."""
    clock = SystemClock()
    async with (
        serving(in_turn(*answers, hold_open)) as script,
        HttpClient(RestConfig(url=script.url), random.Random(1)) as http,
    ):
        cache = Informer(http, PODS, clock, jitter=random.Random(1))
        task = asyncio.create_task(cache.run())
        async with asyncio.timeout(20):
            await cache.wait_for_sync()
            while "resourceVersion" not in script.asked[-1].query:
                await clock.sleep(0.01)
        yield cache, script
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def hold_open(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await asyncio.Event().wait()
    return response


def verbs(script: Script) -> list[str]:
    return [verb(asked.query) for asked in script.asked]


def verb(query: Mapping[str, str]) -> str:
    if "watch" not in query:
        return f"list {query.get('continue', '')}".strip()
    return "stream" if "sendInitialEvents" in query else f"watch {query['resourceVersion']}"


async def test_over_http_the_pages_of_a_list_take_the_place_of_a_stream_and_no_second_one_is_asked_for() -> None:
    pages = page("9", "a", "b", more="next"), page("9", "c")
    over = streams(b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n')
    async with cache_of_pods(NO_STREAMS, *pages, over, page("12", "c")) as (cache, script):
        while len(cache.objects) != 1:
            await SystemClock().sleep(0.01)
        held = {key.name for key in cache.objects}

    assert held == {"c"}
    assert verbs(script)[:5] == ["stream", "list", "list next", "watch 9", "list"]


async def test_over_http_nothing_is_shown_before_the_last_page_and_pages_that_expired_are_listed_again() -> None:
    shown: list[str] = []
    answers = NO_STREAMS, page("9", "gone", more="next"), EXPIRED, page("12", "a")
    async with cache_of_pods(*answers) as (cache, script):
        cache.add_event_handler(lambda key, _old, _new: shown.append(key.name))

    assert shown == ["a"]
    assert verbs(script) == ["stream", "list", "list next", "list", "watch 12"]


async def test_over_http_lists_are_consistent_and_never_the_watch_caches_of_an_older_state() -> None:
    """No `resourceVersion` in a list: a list from a cache may be older than what the last leader has done."""
    async with cache_of_pods(NO_STREAMS, page("9", "a")) as (_, script):
        lists = [asked.query for asked in script.asked if "watch" not in asked.query]

    assert [query.keys() for query in lists] == [{"limit"}]
