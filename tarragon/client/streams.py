"""Leaving a stream that still goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def closed_after(stream: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Without this a stream that nobody reads any more would keep its connection until the garbage collector comes."""
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
