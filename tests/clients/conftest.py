from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.localcluster.apiserver.embedded import embedded

T = TypeVar("T")

Beside = Callable[[Callable[[], T]], Awaitable[T]]
"""Runs what blocks in a thread, as the embedded server lives in this one."""


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def kubeconfig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Path]:
    """Of an embedded server, and of a real control plane."""
    if request.param == "real":
        yield request.getfixturevalue("control_plane").kubeconfig
        return
    async with embedded(tmp_path) as running:
        yield running.kubeconfig(tmp_path)


@pytest.fixture
def beside() -> Beside[Any]:
    return asyncio.to_thread
