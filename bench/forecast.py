#!/usr/bin/env python3
"""How often a job starts within the time band that `tarragon why` has forecast. The goal is four of five.

    python bench/forecast.py [--traces FOLDER]

Jobs are replayed through the policy `fifo` on nodes of eight GPUs. At regular intervals one of the first ten waiting
jobs gets a forecast, which is compared with its actual start. One set of jobs is synthetic: five families, most of them
short and some very long. With `--traces` (or TARRAGON_TRACES), three virtual clusters of Microsoft's Philly trace
(Jeon et al., ATC 2019) are replayed too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench.support.replay import PHILLY, ForecastResult, Replay, TraceJob, coverage, philly, synthetic  # noqa: E402
from tarragon.scheduling.explain.forecast import Forecast  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--traces", default=os.environ.get("TARRAGON_TRACES", ""), help="the folder with the traces")
    table = Table("jobs", "asked", "forecast", "in the band", "before it", "no upper end", "seconds a forecast")
    for what, asked, seconds in measured(parser.parse_args().traces):
        forecasts = [each for each in asked if isinstance(each.forecast, Forecast)]
        early = sum(each.is_early for each in forecasts)
        endless = sum(each.forecast.latest is None for each in forecasts if isinstance(each.forecast, Forecast))
        share = f"{100 * coverage(asked):.0f} %"
        table.add_row(what, str(len(asked)), str(len(forecasts)), share, str(early), str(endless), f"{seconds:.3f}")
    Console(width=110).print(table)


def measured(traces: str) -> Iterator[tuple[str, Sequence[ForecastResult], float]]:
    for seed in (1, 2, 3):
        yield ("synthetic", *timed(Replay(nodes=4, every=15), synthetic(600, seed, 170)))
    if traces:
        for cluster, (nodes, every, most) in PHILLY.items():
            yield (f"philly {cluster}", *timed(Replay(nodes=nodes, every=every), philly(Path(traces), cluster, most)))


def timed(replay: Replay, jobs: Sequence[TraceJob]) -> tuple[Sequence[ForecastResult], float]:
    """The forecasts of a replay, and the seconds per forecast, which include the replay itself."""
    begin = time.perf_counter()
    asked = replay.of(jobs)
    return asked, (time.perf_counter() - begin) / max(1, len(asked))


if __name__ == "__main__":
    main()
