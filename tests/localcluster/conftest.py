from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tarragon.base.clock import ManualClock
from tests.localcluster.things import Asking, opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def asking(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Asking]:
    async with opened(tmp_path / "store.db", clock) as api:
        yield Asking(api)
