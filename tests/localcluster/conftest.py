from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tarragon.base.clock import FakeClock
from tests.localcluster.builders import ApiClient, opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def asking(tmp_path: Path, clock: FakeClock) -> AsyncIterator[ApiClient]:
    async with opened(tmp_path / "store.db", clock) as api:
        yield ApiClient(api)
