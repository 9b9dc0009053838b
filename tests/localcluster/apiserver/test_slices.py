"""Long lists that nobody else waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tarragon.kube.codec import decode, encode
from tarragon.localcluster.api.requests import Json
from tarragon.localcluster.apiserver.http.responses import AT_ONCE, in_slices


async def test_somebody_else_has_a_turn_while_a_long_list_is_made() -> None:
    order: list[str] = []
    items = [encode({"number": number}) for number in range(2 * AT_ONCE + 1)]

    def shown(values: Sequence[Json]) -> Sequence[Json]:
        order.append("slice")
        return values

    async def somebody() -> None:
        order.append("somebody")

    other = asyncio.create_task(somebody())
    made = await in_slices(items, shown)
    await other

    assert order == ["slice", "somebody", "slice", "slice"]
    assert [one["number"] for one in decode(encode(made), list)] == list(range(len(items)))
