"""The port over HTTP against a server that does everything a server may do to its client."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tarragon.client.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    NotFound,
    ResourceExpired,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from tarragon.client.http.client import HttpClient
from tarragon.client.http.transport import RestConfig, lines
from tarragon.client.port import DeleteOptions, LogOptions, Selector, WatchEvent
from tarragon.kube.core import NODES, PODS, Pod
from tarragon.kube.meta import Key
from tests.client.hasty import HastyClock
from tests.localcluster.apiserver.scripted_server import Answer, Script, in_turn, says, serving, streams

KEY = Key("default", "a")


@asynccontextmanager
async def talking(answer: Answer, token: str = "") -> AsyncIterator[tuple[HttpClient, Script]]:
    async with (
        serving(answer) as script,
        HttpClient(RestConfig(url=script.url, token=token), random.Random(1), HastyClock()) as http,
    ):
        yield http, script


def pod(name: str = "a", version: str = "7", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "resourceVersion": version}, **more}


def status(code: int, reason: str, message: str = "no", **more: Any) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, **more}


def line(kind: str, value: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": kind, "object": value}) + b"\n"


async def watched(http: HttpClient, since: str = "5") -> list[WatchEvent[Pod]]:
    return [event async for event in http.watch(PODS, Selector("default"), since)]


async def test_an_object_is_asked_for_by_its_path_with_the_token() -> None:
    async with talking(says(pod()), token="secret") as (http, script):
        found = await http.get(PODS, KEY)

    assert found.metadata.name == "a"
    asked = script.asked[0]
    assert (asked.method, asked.path) == ("GET", "/api/v1/namespaces/default/pods/a")
    assert asked.headers["Authorization"] == "Bearer secret"


async def test_a_name_is_never_taken_for_a_piece_of_the_url() -> None:
    async with talking(says(pod())) as (http, script):
        await http.get(PODS, Key("default", "a?b#c%2e d"))

        assert script.asked[0].path == "/api/v1/namespaces/default/pods/a%3Fb%23c%252e%20d"
        for name in ("a/b", "..", "."):
            with pytest.raises(BadRequest, match="invalid resource name"):
                await http.get(PODS, Key("default", name))
        assert len(script.asked) == 1


async def test_a_delete_without_a_name_never_becomes_a_delete_of_everything() -> None:
    async with talking(says({})) as (http, script):
        with pytest.raises(BadRequest, match="name may not be empty"):
            await http.delete(PODS, Key("default", ""))

        assert script.asked == []


async def test_a_list_is_read_page_by_page() -> None:
    first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [pod("a")]}
    last = {"metadata": {"resourceVersion": "9"}, "items": [pod("b")]}
    async with talking(in_turn(says(first), says(last))) as (http, script):
        listing = await http.list(PODS, Selector("default", label_selector="x=y", field_selector="spec.nodeName=n"))

    assert [each.metadata.name for each in listing.items] == ["a", "b"]
    assert listing.resource_version == "9"
    assert [asked.query.get("continue") for asked in script.asked] == [None, "more"]
    assert all(asked.query["labelSelector"] == "x=y" for asked in script.asked)
    assert all(asked.query["fieldSelector"] == "spec.nodeName=n" for asked in script.asked)


async def test_a_list_whose_pages_are_forgotten_again_and_again_is_read_whole() -> None:
    first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [pod("a")]}
    whole = {"metadata": {"resourceVersion": "12"}, "items": [pod("a"), pod("b")]}
    forgotten = [says(first), says(status(410, "Expired"), 410)]
    async with talking(in_turn(*forgotten, *forgotten, says(whole))) as (http, script):
        listing = await http.list(PODS)

    assert [each.metadata.name for each in listing.items] == ["a", "b"]
    assert listing.resource_version == "12"
    assert [(each.query.get("limit"), each.query.get("continue")) for each in script.asked] == [
        ("1000", None),
        ("1000", "more"),
        ("1000", None),
        ("1000", "more"),
        (None, None),
    ]


async def test_pages_that_were_forgotten_are_asked_for_anew_from_the_first_and_nothing_comes_twice() -> None:
    old = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [pod("a"), pod("b")]}
    new = {"metadata": {"resourceVersion": "12", "continue": "newer"}, "items": [pod("a"), pod("c")]}
    last = {"metadata": {"resourceVersion": "12"}, "items": [pod("d")]}
    answers = in_turn(says(old), says(status(410, "Expired"), 410), says(new), says(last))
    async with talking(answers) as (http, script):
        listing = await http.list(PODS)

    assert [each.metadata.name for each in listing.items] == ["a", "c", "d"]
    assert listing.resource_version == "12"
    assert script.asked[-1].query["continue"] == "newer"


async def test_an_empty_list_written_as_null_is_empty() -> None:
    async with talking(says({"metadata": {"resourceVersion": "9"}, "items": None})) as (http, _):
        assert list((await http.list(NODES)).items) == []


async def test_a_watch_hands_out_events_until_the_server_ends_it() -> None:
    answer = streams(line("ADDED", pod("a", "6")), line("MODIFIED", pod("a", "7")) + line("DELETED", pod("a", "8")))
    async with talking(answer) as (http, script):
        events = await watched(http)

    assert [(event.type, event.resource_version) for event in events] == [
        ("ADDED", "6"),
        ("MODIFIED", "7"),
        ("DELETED", "8"),
    ]
    assert events[0].object is not None
    assert events[0].object.metadata.name == "a"
    assert script.asked[0].query["resourceVersion"] == "5"
    assert script.asked[0].query["allowWatchBookmarks"] == "true"


async def test_watches_end_at_different_times_so_that_they_do_not_all_come_back_at_once() -> None:
    async with talking(streams()) as (http, script):
        for _ in range(3):
            await watched(http)

    dice = random.Random(1)
    asked = [int(each.query["timeoutSeconds"]) for each in script.asked]
    assert asked == [dice.randint(300, 600) for _ in range(3)]


async def test_a_line_may_be_cut_anywhere_and_longer_than_any_buffer() -> None:
    long = line("ADDED", pod("a", "6", spec={"nodeName": "n" * 700_000}))
    pieces = [
        long[:3],
        long[3:200_000],
        long[200_000:] + b'{"type":"MODI',
        line("MODIFIED", pod("a"))[len('{"type":"MODI') :],
    ]
    async with talking(streams(*pieces)) as (http, _):
        events = await watched(http)

    assert [event.type for event in events] == ["ADDED", "MODIFIED"]
    assert events[0].object is not None
    assert len(events[0].object.spec.node_name) == 700_000


async def test_a_bookmark_full_of_nulls_moves_the_version_on() -> None:
    # As kube-apiserver 1.20 sends it.
    bookmark = {
        "kind": "Pod",
        "metadata": {"resourceVersion": "42", "creationTimestamp": None},
        "spec": {"containers": None},
        "status": {},
    }
    async with talking(streams(line("BOOKMARK", bookmark))) as (http, _):
        assert await watched(http) == [WatchEvent("BOOKMARK", "42", None)]


async def test_a_history_that_is_too_short_is_expired_whichever_way_it_is_said() -> None:
    in_stream = streams(line("ADDED", pod()), line("ERROR", status(410, "Expired", "too old resource version")))
    async with talking(in_stream) as (http, _):
        with pytest.raises(ResourceExpired, match="too old"):
            await watched(http)
    async with talking(says(status(410, "Gone"), 410)) as (http, _):
        with pytest.raises(ResourceExpired):
            await watched(http)


async def test_a_watch_whose_connection_breaks_is_unavailable() -> None:
    async with talking(streams(line("ADDED", pod()), b'{"type":"MOD', cut=True)) as (http, _):
        events = http.watch(PODS, Selector(), "5")
        first = await anext(events)
        with pytest.raises(Unavailable, match="closed the connection before"):
            await anext(events)

    assert first.type == "ADDED"


async def test_an_event_of_an_unknown_type_and_a_line_that_is_no_json_are_said_to_be_so() -> None:
    async with talking(streams(b'{"type":"RENAMED","object":{"metadata":{}}}\n')) as (http, _):
        with pytest.raises(Unavailable, match="unknown type: 'RENAMED'"):
            await watched(http)
    async with talking(streams(b"<html>\n")) as (http, _):
        with pytest.raises(Unavailable, match="can't be decoded"):
            await watched(http)


async def never(_: web.BaseRequest) -> web.StreamResponse:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def begun_and_quiet(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(line("ADDED", pod()))
    return await never(request)


async def test_a_watch_that_falls_silent_ends_so_that_the_next_one_finds_out_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tarragon.client.http.client._SILENCE_SECONDS", 0.05)
    async with talking(begun_and_quiet) as (http, _):
        assert [event.type for event in await watched(http)] == ["ADDED"]


async def test_a_peer_that_does_not_answer_at_all_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarragon.client.http.client._SILENCE_SECONDS", 0.05)
    monkeypatch.setattr("tarragon.client.http.transport._RESPONSE_SECONDS", 0.05)
    async with talking(never) as (http, _):
        with pytest.raises(Unavailable, match=r"did not respond in time: GET /api/v1/namespaces/default/pods$"):
            await watched(http)
        with pytest.raises(Unavailable, match="did not respond in time: GET /api/v1/namespaces/default/pods/a"):
            await http.get(PODS, KEY)


async def test_an_abandoned_watch_lets_go_of_its_connection() -> None:
    gone = asyncio.Event()

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(line("ADDED", pod(spec={"nodeName": "n" * 100_000})))
        finally:
            gone.set()

    async with talking(endless) as (http, _):
        events = http.watch(PODS, Selector(), "5")
        async with aclosing(events):  # type: ignore[type-var]
            await anext(events)
        await asyncio.wait_for(gone.wait(), 60)


async def test_closing_the_client_ends_its_watches_and_refuses_more_calls() -> None:
    async with serving(begun_and_quiet) as script:
        http = HttpClient(RestConfig(url=script.url), random.Random(1))
        events = http.watch(PODS, Selector(), "5")
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await http.close()

        with pytest.raises(Unavailable):
            await waiting
        with pytest.raises(Unavailable, match="is closed"):
            await http.get(PODS, KEY)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (429, TooManyRequests),
        (500, Unavailable),
    ],
)
async def test_every_refusal_is_an_error_of_its_kind_with_the_servers_words(code: int, kind: type[ApiError]) -> None:
    async with talking(says(status(code, "", "because"), code)) as (http, _):
        with pytest.raises(kind, match="because") as caught:
            await http.get(PODS, KEY)

    assert caught.value.code == code


async def test_how_long_to_wait_is_read_from_the_header_where_the_status_does_not_say() -> None:
    async with talking(says(status(429, "TooManyRequests"), 429, **{"Retry-After": "7"})) as (http, _):
        with pytest.raises(TooManyRequests) as caught:
            await http.get(PODS, KEY)
    assert caught.value.retry_after == 7

    said = status(429, "TooManyRequests", details={"retryAfterSeconds": 2})
    async with talking(says(said, 429, **{"Retry-After": "7"})) as (http, _):
        with pytest.raises(TooManyRequests) as caught:
            await http.get(PODS, KEY)
    assert caught.value.retry_after == 2


async def test_a_proxy_that_answers_instead_of_the_server_is_quoted() -> None:
    async with talking(says(b"<h1>upstream is down</h1>", 502)) as (http, _):
        with pytest.raises(Unavailable, match="upstream is down"):
            await http.get(PODS, KEY)
    async with talking(says(b"", 404)) as (http, _):
        with pytest.raises(NotFound, match="HTTP 404"):
            await http.get(PODS, KEY)
    async with talking(says(b"welcome, please log in")) as (http, _):
        with pytest.raises(Unavailable, match="can't be decoded"):
            await http.get(PODS, KEY)


async def test_the_token_does_not_follow_a_redirect() -> None:
    async with talking(says(pod())) as (_, target):
        async with talking(says({}, 302, Location=f"{target.url}/api"), token="secret") as (http, _):
            with pytest.raises(ApiError):
                await http.get(PODS, KEY)

        assert target.asked == []


async def test_a_server_that_is_not_there_is_unavailable_in_plain_words() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        async with HttpClient(RestConfig(url=url), random.Random(1)) as http:
            with pytest.raises(Unavailable, match=f"cannot connect to {url}: Connection refused"):
                await http.get(PODS, KEY)


async def test_an_object_is_created_in_the_namespace_that_it_names() -> None:
    async with talking(says(pod(), 201)) as (http, script):
        await http.create(PODS, {"metadata": {"name": "a", "namespace": "team"}})
        await http.create(NODES, {"metadata": {"name": "n"}})

    assert [(asked.method, asked.path) for asked in script.asked] == [
        ("POST", "/api/v1/namespaces/team/pods"),
        ("POST", "/api/v1/nodes"),
    ]
    assert script.asked[0].body == {"metadata": {"name": "a", "namespace": "team"}}


async def test_an_object_of_megabytes_is_sent_like_any_other() -> None:
    annotations = {"large": "x" * 900_000, "larger": "y" * 300_000}
    async with talking(says(pod(), 201)) as (http, script):
        await http.create(PODS, {"metadata": {"name": "a", "namespace": "team", "annotations": annotations}})

    assert script.asked[0].body["metadata"]["annotations"] == annotations


async def test_a_patch_is_a_merge_patch_of_the_object_or_its_subresource() -> None:
    async with talking(says(pod())) as (http, script):
        await http.patch(PODS, KEY, {"status": {"phase": "Running"}}, subresource="status")

    asked = script.asked[0]
    assert (asked.method, asked.path) == ("PATCH", "/api/v1/namespaces/default/pods/a/status")
    assert asked.headers["Content-Type"] == "application/merge-patch+json"
    assert asked.body == {"status": {"phase": "Running"}}


async def test_a_delete_says_its_preconditions_and_leaves_the_rest_to_the_server() -> None:
    async with talking(says({"kind": "Status"})) as (http, script):
        await http.delete(PODS, KEY)
        await http.delete(
            PODS,
            KEY,
            DeleteOptions(uid="u", resource_version="7", grace_period_seconds=0, propagation_policy="Foreground"),
        )

    assert [asked.body for asked in script.asked] == [
        {"apiVersion": "v1", "kind": "DeleteOptions"},
        {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "u", "resourceVersion": "7"},
            "gracePeriodSeconds": 0,
            "propagationPolicy": "Foreground",
        },
    ]


async def test_a_log_comes_as_it_is_written() -> None:
    async with talking(streams(b"one\ntw", b"o\n")) as (http, script):
        options = LogOptions(container="c", follow=True, previous=True, timestamps=True, tail_lines=0, since_seconds=5)
        text = b"".join([chunk async for chunk in http.pod_log(KEY, options)])

    assert text == b"one\ntwo\n"
    assert script.asked[0].path == "/api/v1/namespaces/default/pods/a/log"
    assert script.asked[0].query == {
        "container": "c",
        "follow": "true",
        "previous": "true",
        "timestamps": "true",
        "tailLines": "0",
        "sinceSeconds": "5",
    }


async def test_the_url_may_lead_through_a_folder_of_a_gateway() -> None:
    async with (
        serving(says(pod())) as script,
        HttpClient(RestConfig(url=f"{script.url}/k8s/clusters/c-1/"), random.Random(1)) as http,
    ):
        await http.get(PODS, KEY)

    assert script.asked[0].path == "/k8s/clusters/c-1/api/v1/namespaces/default/pods/a"


async def test_what_follows_the_last_line_end_is_no_line() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for piece in (b"a\n\nb", b"", b"c\nd"):
            yield piece

    assert [each async for each in lines(chunks())] == [b"a", b"", b"bc"]


def test_secrets_are_not_shown_when_a_server_is_printed() -> None:
    shown = repr(RestConfig(url="https://h", token="t0ken", client_key=b"k3y"))

    assert "t0ken" not in shown
    assert "k3y" not in shown
