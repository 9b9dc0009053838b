"""Long lists in another form than they are stored in, a few objects at a time: others have their turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tarragon.kube.codec import decode, encode

Json = dict[str, Any]

AT_ONCE = 100
"""Objects: a few milliseconds."""


async def in_slices(items: Sequence[bytes], shown: Callable[[Sequence[Json]], Sequence[Json]]) -> list[msgspec.Raw]:
    """What `shown` makes of the objects, encoded. The objects are those of one revision however long it takes."""
    told: list[msgspec.Raw] = []
    for start in range(0, len(items), AT_ONCE):
        values = [decode(item, dict) for item in items[start : start + AT_ONCE]]
        told += [msgspec.Raw(encode(one)) for one in shown(values)]
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the event loop, not a wait
    return told
