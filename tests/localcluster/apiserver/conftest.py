"""A server with one kind of its own, and a client that may ask it for everything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.localcluster.apiserver.embedded import TOKEN, Embedded, embedded
from tests.localcluster.apiserver.test_apiserver import Wire, trusting


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with embedded(tmp_path) as running:
        await running.add_widgets()
        yield running


@pytest.fixture
async def ask(server: Embedded) -> AsyncIterator[Wire]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    connector = aiohttp.TCPConnector(ssl=trusting(server))
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        yield Wire(server, session)
