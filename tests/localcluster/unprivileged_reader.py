"""Prints the names of the ConfigMaps in a store, as a user without write permission in its folder."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tarragon.kube.core import CONFIG_MAPS
from tarragon.localcluster.registry.offline import OfflineCluster

NOBODY = 65534


async def main(path: Path) -> None:
    reading = OfflineCluster.open(path)
    try:
        for thing in (await reading.list(CONFIG_MAPS)).items:
            sys.stdout.write(f"{thing.metadata.name}\n")
    finally:
        reading.close()


if __name__ == "__main__":
    if os.geteuid() == 0:
        os.setuid(NOBODY)
    asyncio.run(main(Path(sys.argv[1])))
