"""Runs several writes concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable


async def run_all(writes: Iterable[Coroutine[None, None, None]]) -> None:
    """Wait until all writes have finished, then raise the first error: on return, no write is still running."""
    for result in await asyncio.gather(*writes, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
