from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from aiohttp import web

from tarragon.client.errors import Conflict, TooManyRequests, Unavailable
from tarragon.client.http.client import HttpClient
from tarragon.client.http.transport import RestConfig
from tarragon.client.port import LogOptions, Selector
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tests.client.hasty import HastyClock
from tests.localcluster.apiserver.scripted_server import Answer, Script, in_turn, says, serving, streams

KEY = Key("default", "a")
POD = {"metadata": {"name": "a", "namespace": "default", "resourceVersion": "7"}}
FINE = says(POD)


@dataclass
class Scene:
    http: HttpClient
    script: Script
    clock: HastyClock

    @property
    def attempts(self) -> int:
        return len(self.script.asked)


@asynccontextmanager
async def asking(*answers: Answer) -> AsyncIterator[Scene]:
    clock = HastyClock()
    async with (
        serving(in_turn(*answers)) as script,
        HttpClient(RestConfig(url=script.url), random.Random(1), clock) as http,
    ):
        yield Scene(http, script, clock)


def busy(seconds: str = "1") -> Answer:
    status = {"kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests", "message": "busy"}
    return says(status, 429, **({"Retry-After": seconds} if seconds else {}))


def failing(code: int = 500) -> Answer:
    return says({"kind": "Status", "status": "Failure", "code": code, "message": "etcd is slow"}, code)


async def hang_up(request: web.BaseRequest) -> web.StreamResponse:
    """Without a word."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


@pytest.mark.parametrize("verb", ["get", "create", "patch", "delete", "list"])
async def test_what_a_busy_server_refused_is_asked_for_again_whatever_it_is(verb: str) -> None:
    async with asking(busy("3"), busy("3"), FINE) as scene:
        match verb:
            case "get":
                await scene.http.get(PODS, KEY)
            case "create":
                await scene.http.create(PODS, POD)
            case "patch":
                await scene.http.patch(PODS, KEY, {"metadata": {}})
            case "delete":
                await scene.http.delete(PODS, KEY)
            case _:
                await scene.http.list(PODS)

        assert scene.attempts == 3
        assert len({each.method for each in scene.script.asked}) == 1
        assert len({str(each.body) for each in scene.script.asked}) == 1


async def test_the_pauses_are_what_the_server_asked_for_or_longer_and_differ() -> None:
    async with asking(busy("4"), busy("4"), busy("4"), FINE) as scene:
        await scene.http.get(PODS, KEY)

        assert all(4 <= pause <= 6 for pause in scene.clock.slept)
        assert len(set(scene.clock.slept)) == 3


async def test_a_server_that_is_busy_for_ever_is_not_asked_for_ever() -> None:
    async with asking(busy("")) as scene:
        with pytest.raises(TooManyRequests, match="busy"):
            await scene.http.create(PODS, POD)

        assert scene.attempts == 6
        assert all(pause >= 1 for pause in scene.clock.slept)


async def test_whoever_shall_wait_long_is_told_at_once_how_long() -> None:
    async with asking(busy("60")) as scene:
        with pytest.raises(TooManyRequests) as caught:
            await scene.http.get(PODS, KEY)

        assert caught.value.retry_after == 60
        assert scene.attempts == 1


@pytest.mark.parametrize(
    "trouble", [failing(500), failing(503), failing(504), hang_up], ids=["500", "503", "504", "cut"]
)
async def test_reading_that_failed_is_repeated(trouble: Answer) -> None:
    async with asking(trouble, trouble, FINE) as scene:
        assert (await scene.http.get(PODS, KEY)).metadata.name == "a"

        assert scene.attempts == 3
        assert len(scene.clock.slept) == 2
        assert scene.clock.slept[0] <= 0.3 < sum(scene.clock.slept) <= 0.9


@pytest.mark.parametrize(
    "trouble", [failing(500), failing(503), failing(504), hang_up], ids=["500", "503", "504", "cut"]
)
async def test_writing_that_failed_is_never_repeated_as_it_may_have_been_done(trouble: Answer) -> None:
    async with asking(trouble) as scene:
        with pytest.raises(Unavailable):
            await scene.http.create(PODS, POD)
        with pytest.raises(Unavailable):
            await scene.http.patch(PODS, KEY, {"metadata": {}})
        with pytest.raises(Unavailable):
            await scene.http.delete(PODS, KEY)

        assert [each.method for each in scene.script.asked] == ["POST", "PATCH", "DELETE"]
        assert scene.clock.slept == []


async def test_a_server_that_fails_for_ever_is_not_asked_for_ever() -> None:
    async with asking(failing()) as scene:
        with pytest.raises(Unavailable, match="etcd is slow"):
            await scene.http.get(PODS, KEY)

        assert scene.attempts == 4


async def test_a_page_that_fails_is_asked_for_again_and_not_the_whole_list() -> None:
    first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [POD]}
    last = {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "b", "namespace": "default"}}]}
    async with asking(says(first), failing(), busy(), says(last)) as scene:
        listing = await scene.http.list(PODS)

        assert [each.metadata.name for each in listing.items] == ["a", "b"]
        assert [each.query.get("continue") for each in scene.script.asked] == [None, "more", "more", "more"]


async def test_a_body_that_breaks_off_is_read_anew() -> None:
    async with asking(streams(b'{"metadata":', cut=True), FINE) as scene:
        assert (await scene.http.get(PODS, KEY)).metadata.name == "a"


async def test_a_server_that_is_not_there_is_not_asked_again_at_once() -> None:
    async with asking(FINE) as scene:
        pass
    clock = HastyClock()
    async with HttpClient(RestConfig(url=scene.script.url), random.Random(1), clock) as http:
        with pytest.raises(Unavailable, match="Connection refused"):
            await http.get(PODS, KEY)

    assert clock.slept == []


async def test_a_refusal_that_waiting_does_not_mend_stands() -> None:
    async with asking(says({"kind": "Status", "code": 409, "reason": "Conflict", "message": "no"}, 409)) as scene:
        with pytest.raises(Conflict):
            await scene.http.patch(PODS, KEY, {"metadata": {}})

        assert scene.attempts == 1


async def test_the_beginning_of_a_watch_or_a_log_is_repeated_like_any_reading() -> None:
    async with asking(busy(), failing(503), streams(b"hello\n")) as scene:
        assert b"".join([chunk async for chunk in scene.http.pod_log(KEY, LogOptions())]) == b"hello\n"
    bookmark = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"8"}}}\n'
    async with asking(busy(), streams(bookmark)) as scene:
        events = [event async for event in scene.http.watch(PODS, Selector(), "5")]

    assert [event.resource_version for event in events] == ["8"]
