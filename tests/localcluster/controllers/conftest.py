"""Clusters for the tests of controllers.

`world` is the embedded cluster; `scene` is also a real one, whose controllers ours must match.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.localcluster.controllers.world import ControllerTest, EmbeddedCluster, a_real_world, a_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    async with a_world(tmp_path) as world:
        yield world


@pytest.fixture(params=["embedded", pytest.param("real", marks=[pytest.mark.real, pytest.mark.slow])])
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ControllerTest]:
    if request.param == "real":
        async with a_real_world(request.getfixturevalue("control_plane")) as real:
            yield real
    else:
        async with a_world(tmp_path) as world:
            yield world
