from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from aiohttp import web

from tarragon.base.clock import FakeClock
from tarragon.client.errors import ApiError, CredentialsError, Unauthorized, Unavailable
from tarragon.client.http.client import HttpClient
from tarragon.client.http.credentials import ClientIdentity, Credentials, CredentialSources, FileCredentials
from tarragon.client.http.transport import RestConfig
from tarragon.client.port import ALL_OBJECTS
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tests.client.hasty import HastyClock
from tests.client.tunnel import tunnel
from tests.localcluster.apiserver.scripted_server import Answer, Script, says, serving

KEY = Key("default", "a")
POD = {"metadata": {"name": "a", "namespace": "default", "resourceVersion": "7"}}
SECRET = "s3cr3t-t0ken"


async def test_a_token_is_read_again_each_minute(tmp_path: Path) -> None:
    token, clock = tmp_path / "token", FakeClock()
    token.write_text("one\n")
    credentials = FileCredentials(CredentialSources(token_file=token), clock)
    assert await credentials.identity() == ClientIdentity("Bearer one")

    token.write_text("two\n")
    clock.advance(59)
    assert await credentials.identity() == ClientIdentity("Bearer one")
    clock.advance(1)
    assert await credentials.identity() == ClientIdentity("Bearer two")


async def test_a_refused_token_is_read_again_at_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    credentials = FileCredentials(CredentialSources(token_file=token), FakeClock())
    old = await credentials.identity()

    token.write_text("two")
    assert await credentials.identity() == old
    assert await credentials.identity(old) == ClientIdentity("Bearer two")
    assert await credentials.identity(old) == ClientIdentity("Bearer two")


async def test_a_token_holds_while_its_file_is_replaced(tmp_path: Path) -> None:
    token, clock = tmp_path / "token", FakeClock()
    token.write_text("one")
    credentials = FileCredentials(CredentialSources(token="older", token_file=token), clock)
    await credentials.identity()
    token.unlink()
    clock.advance(61)

    assert await credentials.identity() == ClientIdentity("Bearer one")


async def test_a_file_that_never_was_there_is_told_by_name(tmp_path: Path) -> None:
    credentials = FileCredentials(CredentialSources(token_file=tmp_path / "token"), FakeClock())

    with pytest.raises(CredentialsError, match=r"a credentials file can't be read\n.*/token: No such file"):
        await credentials.identity()


async def test_a_renewed_client_certificate_is_read_again_with_its_key(tmp_path: Path) -> None:
    certificate, key, clock = tmp_path / "c.crt", tmp_path / "c.key", FakeClock()
    certificate.write_text("C1")
    key.write_text("K1")
    credentials = FileCredentials(CredentialSources(certificate=certificate, key=key), clock)
    assert await credentials.identity() == ClientIdentity("", b"C1", b"K1")

    certificate.write_text("C2")
    key.write_text("K2")
    clock.advance(60)
    assert await credentials.identity() == ClientIdentity("", b"C2", b"K2")


@dataclass
class Wallet:
    """Shows one identity after the other: the next whenever one is refused, the last one for ever."""

    identities: list[ClientIdentity]
    refused: list[ClientIdentity] = field(default_factory=list)

    async def identity(self, refused: ClientIdentity | None = None) -> ClientIdentity:
        if refused is not None:
            self.refused.append(refused)
            if len(self.identities) > 1:
                self.identities.pop(0)
        return self.identities[0]


def only(token: str, otherwise: Answer) -> Answer:
    """Lets in whoever has the token."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Authorization") == f"Bearer {token}":
            return await otherwise(request)
        return await says({"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "who?"}, 401)(request)

    return answer


@asynccontextmanager
async def let_in(answer: Answer, credentials: Credentials) -> AsyncIterator[tuple[HttpClient, Script]]:
    async with serving(answer) as script:
        server = RestConfig(url=script.url, credentials=credentials)
        async with HttpClient(server, random.Random(1), HastyClock()) as http:
            yield http, script


def bearers(*tokens: str) -> Wallet:
    return Wallet([ClientIdentity(f"Bearer {token}") for token in tokens])


async def test_a_refused_identity_is_renewed_and_the_request_repeated_whatever_it_is() -> None:
    wallet = bearers("old", "new")
    async with let_in(only("new", says(POD)), wallet) as (http, script):
        await http.create(PODS, POD)
        await http.patch(PODS, KEY, {})

    assert wallet.refused == [ClientIdentity("Bearer old")]
    assert [(each.method, each.headers["Authorization"]) for each in script.asked] == [
        ("POST", "Bearer old"),
        ("POST", "Bearer new"),
        ("PATCH", "Bearer new"),
    ]
    assert script.asked[0].body == script.asked[1].body == POD


async def test_a_watch_begins_with_a_renewed_identity_too() -> None:
    wallet = bearers("old", "new")
    async with let_in(only("new", says({})), wallet) as (http, script), aclosing(http.pod_log(KEY)) as chunks:  # type: ignore[type-var]
        assert [chunk async for chunk in chunks] == [b"{}"]

    assert len(script.asked) == 2


async def test_who_is_refused_twice_is_told_so_and_not_asked_for_ever() -> None:
    wallet = bearers("old", "newer", "newest")
    async with let_in(only("other", says(POD)), wallet) as (http, script):
        with pytest.raises(Unauthorized, match="who"):
            await http.get(PODS, KEY)

        assert len(script.asked) == 2


async def test_an_identity_that_stays_the_same_is_not_tried_twice() -> None:
    async with let_in(only("other", says(POD)), bearers("same")) as (http, script):
        with pytest.raises(Unauthorized, match="who"):
            await http.get(PODS, KEY)

        assert len(script.asked) == 1


async def test_a_fixed_token_is_tried_once() -> None:
    async with serving(only("other", says(POD))) as script:
        async with HttpClient(RestConfig(url=script.url, token=SECRET), random.Random(1)) as http:
            with pytest.raises(Unauthorized):
                await http.get(PODS, KEY)

        assert len(script.asked) == 1


async def test_whom_somebody_acts_as_is_said_in_each_request() -> None:
    headers = (("Impersonate-User", "ann"), ("Impersonate-Group", "dev"), ("Impersonate-Group", "ops"))
    groups: list[list[str]] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        groups.append(request.headers.getall("Impersonate-Group"))
        return await says(POD)(request)

    async with (
        serving(answer) as script,
        HttpClient(RestConfig(url=script.url, headers=headers), random.Random(1)) as http,
    ):
        await http.get(PODS, KEY)

    assert script.asked[0].headers["Impersonate-User"] == "ann"
    assert groups == [["dev", "ops"]]


TROUBLES = ["unauthorized", "not there", "cut", "proxy", "proxy not there", "no TLS"]


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_no_error_tells_the_token_or_the_password_of_a_proxy(trouble: str) -> None:
    async def cut(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async with serving(cut if trouble == "cut" else only("other", says(POD))) as script, tunnel() as proxy:
        proxy.refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
        secure = script.url.replace("http:", "https:")
        server = RestConfig(url=script.url, token=SECRET)
        match trouble:
            case "not there":
                server = replace(server, url="http://127.0.0.1:1")
            case "proxy":
                server = replace(server, url=secure, proxy_url=f"http://me:{SECRET}@127.0.0.1:{proxy.port}")
            case "proxy not there":
                server = replace(server, url=secure, proxy_url=f"http://me:{SECRET}@127.0.0.1:1")
            case "no TLS":
                server = replace(server, url=secure)
            case _:
                pass
        async with HttpClient(server, random.Random(1), HastyClock()) as http:
            with pytest.raises(ApiError) as caught:
                await http.get(PODS, KEY)

    output = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(caught.value.status)
    chained = caught.value.__cause__
    assert SECRET not in output + (str(chained) if chained else "")


async def test_a_proxy_that_refuses_or_is_not_there_is_named() -> None:
    async with tunnel() as proxy:
        proxy.refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
        server = RestConfig(url="https://api.example:6443", proxy_url=proxy.url)
        async with HttpClient(server, random.Random(1)) as http:
            with pytest.raises(Unavailable) as caught:
                await http.list(PODS, ALL_OBJECTS)
    assert str(caught.value) == (
        f"the proxy {proxy.url} rejected the connection to https://api.example:6443: Proxy Authentication Required"
    )
    async with HttpClient(server, random.Random(1)) as http:
        with pytest.raises(Unavailable, match=f"cannot connect to the proxy {proxy.url}.*: Connection refused"):
            await http.list(PODS, ALL_OBJECTS)


@asynccontextmanager
async def deaf() -> AsyncIterator[str]:
    """The URL of a server that takes connections, reads nothing and says nothing."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # noqa: SLF001

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for writer in writers:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def test_a_proxy_that_says_nothing_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarragon.client.http.transport._TUNNEL_SECONDS", 0.1)
    async with (
        deaf() as url,
        HttpClient(RestConfig(url="https://api.example:6443", proxy_url=url), random.Random(1)) as http,
    ):
        with pytest.raises(Unavailable, match="did not respond in time"):
            await http.get(PODS, KEY)


async def test_a_large_body_that_nobody_takes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other end of the connection is gone without a word: what is written stays in buffers."""
    monkeypatch.setattr("tarragon.client.http.transport._CALL_SECONDS", 0.5)
    async with deaf() as url, HttpClient(RestConfig(url=url), random.Random(1)) as http, asyncio.timeout(60):
        with pytest.raises(Unavailable, match="did not respond in time"):
            await http.create(PODS, {**POD, "data": "x" * 30_000_000})
