from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.access.both import Both, both
from tools.controlplane import ControlPlane


@pytest.fixture
async def servers(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Both]:
    async with both(control_plane, tmp_path / "home") as made:
        yield made


@pytest.fixture
def mark() -> str:
    """In the names of all that a test makes: it shares a server."""
    return f"access-{uuid.uuid4().hex[:8]}"
