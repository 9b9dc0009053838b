"""The one place where tests of real processes look again until something has come true."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(probe: Callable[[], T], seconds: float = 60.0) -> T:
    """The first result that is true; fails with the last one after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (result := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"has not come true within {seconds} s: {probe}; last: {result!r}")
        await asyncio.sleep(0.01)  # noqa: TID251 - a real process tells nobody here when it has got somewhere
    return result
