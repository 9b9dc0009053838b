#!/usr/bin/env python3
"""The cost of an idle embedded cluster: time to start and stop, memory and CPU.

    python bench/idle.py [--starts N] [--seconds S]

Each start is what `tarragon run` does when no cluster runs: it starts a background process. The first start of a home
creates certificates and the store, which later starts reuse. Memory is PSS (the pages that processes share are divided
among them) and includes the operator, as in `tarragon up`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tarragon.base.clock import SystemClock  # noqa: E402
from tarragon.localcluster.daemon.background import ensure_running, stop  # noqa: E402
from tarragon.localcluster.home.home import Home  # noqa: E402

CLOCK = SystemClock()
SETTLE_SECONDS = 5.0
"""Time after the start in which caches fill and nodes send their first heartbeat, before anything is measured."""


def memory(pid: int) -> Mapping[str, float]:
    """The memory of a process in MiB, by the names of smaps_rollup."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(rest.split()[0]) / 1024 for name, rest in (line.split(":", 1) for line in lines)}


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def starts(home: Home, count: int) -> tuple[list[float], list[float]]:
    """Start the server `count` times and stop it in between. Returns the seconds of each start and each stop."""
    up: list[float] = []
    down: list[float] = []
    for number in range(count):
        began = time.perf_counter()
        await ensure_running(home, CLOCK)
        up.append(time.perf_counter() - began)
        if number < count - 1:
            began = time.perf_counter()
            await stop(home, CLOCK)
            down.append(time.perf_counter() - began)
    return up, down


async def measure(home: Home, count: int, seconds: float) -> Table:
    up, down = await starts(home, count)
    server = await ensure_running(home, CLOCK)
    await CLOCK.sleep(SETTLE_SECONDS)
    before = cpu_seconds(server.pid)
    await CLOCK.sleep(seconds)
    used = cpu_seconds(server.pid) - before
    resting = memory(server.pid)
    began = time.perf_counter()
    again = await ensure_running(home, CLOCK)
    lookup_seconds = time.perf_counter() - began
    assert again == server
    table = Table("what", "measured", title="The embedded cluster at rest")
    table.add_row("first start of a home", f"{up[0]:.2f} s")
    table.add_row(f"later starts, median of {len(up) - 1}", f"{statistics.median(up[1:]):.2f} s")
    table.add_row("finding it running", f"{lookup_seconds * 1000:.0f} ms")
    table.add_row("stop, median", f"{statistics.median(down):.2f} s")
    table.add_row("memory, PSS", f"{resting['Pss']:.0f} MiB")
    table.add_row("memory, RSS", f"{resting['Rss']:.0f} MiB")
    table.add_row(f"CPU over {seconds:.0f} s", f"{used:.2f} s ({used / seconds:.2%} of a core)")
    return table


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5, help="at least 2")
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the measurement when idle")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tarragon-bench-") as folder:
        home = Home(Path(folder) / "home")
        try:
            table = await measure(home, max(2, arguments.starts), arguments.seconds)
        finally:
            await stop(home, CLOCK)
        Console().print(table)


if __name__ == "__main__":
    asyncio.run(main())
