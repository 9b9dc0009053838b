#!/usr/bin/env python3
"""How fast the simulator is, in scheduling rounds a minute on one core, and how that changes with jobs and nodes.

    python bench/simulator.py [--traces FOLDER] [--policy NAME] [--no-growth]

With `--traces` (or TARRAGON_TRACES): all eight Pollux workloads of 160 jobs on 16 nodes of four GPUs, for which the
goal is 100,000 rounds a minute. Growth is measured with synthetic jobs. Times are CPU times.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench.support.control_plane import load  # noqa: E402
from bench.support.traces import Scene, comparison_of, synthetic  # noqa: E402
from tarragon.scheduling.policies import POLICIES  # noqa: E402
from tarragon.simulator.comparison import Comparison  # noqa: E402

GOAL = 100_000
SIZES = ((160, 16), (640, 16), (2560, 16), (160, 64), (160, 256), (2560, 256))
"""Jobs and nodes."""


def measured(policy: str, what: str, comparison: Comparison) -> tuple[str, ...]:
    begin = time.process_time()
    result = comparison.run(policy)
    seconds = time.process_time() - begin
    rounds = sum(workload.rounds for workload in result.workloads)
    return policy, what, f"{rounds:,}", f"{seconds:.1f}", f"{rounds * 60 / seconds:,.0f}"


def rows(options: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    for policy in options.policy or list(POLICIES):
        if options.traces:
            scene = Scene(trace="pollux_jobs.csv.gz", bounds="spec")
            yield measured(policy, "Pollux, 8 workloads", scene.comparison(Path(options.traces)))
        for jobs, nodes in () if options.no_growth else SIZES:
            scene = Scene(trace="", nodes=nodes, bounds="spec")
            yield measured(policy, f"{jobs} jobs, {nodes} nodes", comparison_of([synthetic(jobs, nodes, 1)], scene))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--traces", default=os.environ.get("TARRAGON_TRACES", ""), help="the folder with the traces")
    parser.add_argument("--policy", choices=sorted(POLICIES), action="append", help="only these policies; default: all")
    parser.add_argument("--no-growth", action="store_true", help="only the Pollux traces")
    title = f"rounds a minute, goal {GOAL:,} for Pollux, {load()}"
    table = Table("policy", "workload", "rounds", "seconds", "rounds a minute", title=title)
    for row in rows(parser.parse_args()):
        table.add_row(*row)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
