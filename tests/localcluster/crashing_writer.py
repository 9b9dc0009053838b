"""Increments ConfigMaps from many tasks and prints every acknowledged value, until it is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tarragon.base.clock import SystemClock
from tarragon.client.errors import NotFound
from tarragon.localcluster.registry.api import Api
from tests.localcluster.builders import CONFIG_MAPS, ApiClient, config_map


async def main(path: Path, generation: str) -> None:
    api = await Api.open(path, SystemClock())
    asking = ApiClient(api)
    await asyncio.gather(*(count(asking, f"g{generation}-{number}") for number in range(16)))


async def count(asking: ApiClient, name: str) -> None:
    try:
        asking.get(CONFIG_MAPS, name)
    except NotFound:
        await asking.create(CONFIG_MAPS, config_map(name, count="0", twin="0"))
    for number in range(1, 1_000_000):
        await asking.patch(CONFIG_MAPS, name, {"data": {"count": str(number), "twin": str(number)}})
        sys.stdout.write(f"{name} {number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
