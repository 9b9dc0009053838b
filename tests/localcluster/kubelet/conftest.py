from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.localcluster.kubelet.world import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = await World.make(tmp_path)
    yield world
    await world.close()
