"""Several writes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable


async def all_of(writes: Iterable[Coroutine[None, None, None]]) -> None:
    """Raises the first error, when all have come to an end: whoever goes on must know what they did."""
    for ended in await asyncio.gather(*writes, return_exceptions=True):
        if isinstance(ended, BaseException):
            raise ended
