"""A cache that begins with a streaming list, and one whose server has none."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from tarragon.client.errors import ApiError, error_from_status, unreachable
from tarragon.client.port import EventType, WatchEvent
from tarragon.kube.codec import encode
from tests.client.scripted import error, settle
from tests.client.test_informer import Scene

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
