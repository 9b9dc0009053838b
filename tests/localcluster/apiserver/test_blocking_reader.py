"""The reader of the command line against the embedded API server: it reads what `HttpClient` reads."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tarragon.base.clock import SystemClock
from tarragon.client.errors import BadRequest, NotFound, Unauthorized, Unavailable, Unreachable
from tarragon.client.http.blocking_reader import BlockingReader
from tarragon.client.http.requests import PAGE
from tarragon.client.port import Client, Selector
from tarragon.kube.core import CONFIG_MAPS
from tarragon.kube.meta import Key
from tarragon.localcluster.home.home import Home
from tests.localcluster.apiserver.embedded import TOKEN, Embedded, embedded, server_tls
from tests.localcluster.apiserver.scripted_server import Answer, Script, in_turn, never, says, serving

T = TypeVar("T")

MAPS = CONFIG_MAPS.with_model(dict)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with embedded(tmp_path) as found:
        yield found


async def read(running: Embedded, ask: Callable[[BlockingReader], Awaitable[T]], token: str = TOKEN) -> T:
    """Asks in a thread of its own: the server is in this one."""

    async def asked() -> T:
        with BlockingReader(running.url, running.ca, token, "test") as reader:
            return await ask(reader)

    return await asyncio.to_thread(lambda: asyncio.run(asked()))


async def create(http: Client, *names: str) -> None:
    for name in names:
        await http.create(MAPS, {"metadata": {"name": name, "namespace": "default", "labels": {"name": name}}})


async def test_it_reads_what_the_client_of_everything_else_reads(running: Embedded) -> None:
    async with running.client() as http:
        await create(http, "a", "b")
        chosen = Selector("default", label_selector="name in (a)", field_selector="metadata.name!=b")

        for selection in (Selector("default"), chosen, Selector("elsewhere"), Selector()):
            theirs = await http.list(MAPS, selection)
            ours = await read(running, lambda reader, asked=selection: reader.list(MAPS, asked))  # type: ignore[misc]
            assert ours.items == theirs.items
        one = await read(running, lambda reader: reader.get(MAPS, Key("default", "a")))
        assert one == await http.get(MAPS, Key("default", "a"))


async def test_a_list_is_read_to_its_last_page(running: Embedded) -> None:
    async with running.client() as http:
        await create(http, *(f"map-{number}" for number in range(PAGE + 2)))

    found = await read(running, lambda reader: reader.list(MAPS, Selector("default")))

    assert len({each["metadata"]["name"] for each in found.items}) == PAGE + 2


async def test_what_the_server_refuses_is_the_error_that_it_says(running: Embedded) -> None:
    with pytest.raises(NotFound, match='configmaps "nope" not found'):
        await read(running, lambda reader: reader.get(MAPS, Key("default", "nope")))
    with pytest.raises(Unauthorized):
        await read(running, lambda reader: reader.list(MAPS), token="another")
    with pytest.raises(BadRequest, match="invalid resource name"):
        await read(running, lambda reader: reader.get(MAPS, Key("default", "..")))


async def test_a_server_that_is_not_there_is_unavailable(running: Embedded) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    url = f"https://127.0.0.1:{port}"
    with BlockingReader(url, running.ca, TOKEN, "t") as reader, pytest.raises(Unavailable, match=f"connect to {url}"):
        reader.read("/version", {})


@asynccontextmanager
async def scripted(home: Home, answer: Answer) -> AsyncIterator[Script]:
    """A server with the certificates of the home that answers so."""
    home.prepare()
    async with serving(answer, server_tls(home, SystemClock())) as script:
        yield script


def page(version: str, *names: str, more: str = "") -> Answer:
    metadata = {"resourceVersion": version, "continue": more}
    items: list[dict[str, Any]] = [{"metadata": {"name": name}} for name in names]
    return says({"metadata": metadata, "items": items})


async def test_a_list_whose_pages_are_forgotten_again_and_again_is_read_whole(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    expired = says({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"}, 410)
    forgotten = [page("9", "a", more="more"), expired]

    async with scripted(home, in_turn(*forgotten, *forgotten, page("12", "a", "b"))) as script:
        with BlockingReader(script.url, home.ca.read_bytes(), TOKEN, "t") as reader:
            found = await asyncio.to_thread(lambda: asyncio.run(reader.list(MAPS)))

    assert [each["metadata"]["name"] for each in found.items] == ["a", "b"]
    assert found.resource_version == "12"
    asked = [(each.query.get("limit"), each.query.get("continue")) for each in script.asked]
    assert asked == [(str(PAGE), None), (str(PAGE), "more")] * 2 + [(None, None)]


async def test_a_server_that_has_not_answered_at_the_deadline_is_asked_nothing_more(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    async with scripted(home, never) as script:
        ca, soon = home.ca.read_bytes(), time.monotonic() + 0.5
        with BlockingReader(script.url, ca, TOKEN, "t", soon) as reader:
            for _ in range(2):
                with pytest.raises(Unreachable, match="did not respond in time: GET /version"):
                    await asyncio.to_thread(reader.read, "/version", {})
        assert len(script.asked) <= 1
