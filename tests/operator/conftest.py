from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.operator.stage import Stage, a_stage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with a_stage(tmp_path) as stage:
        yield stage
