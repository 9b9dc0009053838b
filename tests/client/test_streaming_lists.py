"""A cache that begins with a streaming list, and one whose server has none."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from tarragon.client.errors import ApiError
from tarragon.client.port import EventType, WatchEvent
from tarragon.kube.codec import encode
from tests.client.scripted import error, settle
from tests.client.test_informer import Scene

Event = WatchEvent[bytes]


def event(kind: EventType, name: str, version: int, value: int = 0) -> Event:
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


async def test_a_stream_that_breaks_off_shows_nothing_and_is_asked_for_again() -> None:
    scene = streaming([event("ADDED", "gone", 7)], [event("ADDED", "a", 8, 1), end(100)])
    scene.server.put("a", 1)
    async with scene.running():
        assert [name for name, _, _ in scene.seen_changes] == ["a"]
        assert scene.server.calls[:2] == [("stream", ""), ("list", "")]


async def test_a_server_without_streaming_lists_is_asked_once_and_then_no_more() -> None:
    scene = streaming(error(422, "Invalid"))
    scene.server.put("a", 1)
    async with scene.running():
        scene.server.forget()
        scene.server.put("b", 2)
        scene.server.forget()
        scene.server.cut_now(error(410, "Expired"))
        await settle(scene.clock)
        await scene.pass_time(60)

        assert sorted(scene.cache.objects) == sorted(scene.server.values)
    assert [call for call, _ in scene.server.calls].count("stream") == 1
    assert [call for call, _ in scene.server.calls].count("list") == 2


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


async def test_a_server_that_fails_is_asked_for_a_stream_again() -> None:
    scene = streaming(error(503, "ServiceUnavailable"), [event("ADDED", "a", 7, 1), end(100)])
    async with scene.running():
        await scene.pass_time(60)

        assert scene.seen_changes == [("a", None, 1)]
    assert [call for call, _ in scene.server.calls].count("list") == 0
