"""Polls for a condition in tests with real processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(probe: Callable[[], T], seconds: float = 60.0) -> T:
    """Poll until the result is true, and return it; fail with the last result after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (result := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"has not come true within {seconds} s: {probe}; last: {result!r}")
        await asyncio.sleep(0.01)  # noqa: TID251 - a real process does not signal its progress
    return result
