#!/usr/bin/env python3
"""The mean completion times of all policies on public traces, with the goals of `elastic`, to see what a change costs.

    python bench/policies.py [--traces FOLDER] [--policy NAME] [--no-philly]

Pollux: eight workloads of 160 jobs (load 1) or 320 (load 2) on 64 GPUs. Philly: the jobs of seven days, on 256 GPUs
with run times cut to a day, and on 512 GPUs. Nodes have four GPUs; a start or resize costs 30 seconds. The program
needs the traces (`--traces` or TARRAGON_TRACES); Philly takes minutes for each policy. A mean over its goal is marked.
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

from bench.support.traces import Scene  # noqa: E402
from tarragon.scheduling.policies import POLICIES  # noqa: E402
from tarragon.simulator.metrics import summarize  # noqa: E402
from tarragon.simulator.workload import BoundsRule  # noqa: E402

DAY = 86_400.0
RIGID = "plain-backfill"
"""The baseline whose mean and longest wait rigid jobs are compared with."""
BOUNDS: Sequence[BoundsRule] = ("rigid", "spec", "wide")
GOALS = {
    ("rigid", 1.0, True): 6600,
    ("spec", 1.0, True): 2800,
    ("spec", 1.0, False): 3200,
    ("spec", 2.0, True): 5000,
    ("spec", 2.0, False): 6600,
}
"""Of `elastic` on Pollux, in seconds: by bounds, load, and whether progress is reported."""
PHILLY_GOALS = {(256, True): 5500, (256, False): 7700, (512, True): 3900, (512, False): 4200}


def scenes(*, philly: bool) -> Iterator[tuple[str, Scene, int | None]]:
    """Yield the name, the scene, and the goal of `elastic`."""
    for bounds in BOUNDS:
        for factor in (1.0, 2.0):
            for reported in (True, False):
                scene = Scene(trace="pollux_jobs.csv.gz", bounds=bounds, load=factor, is_progress_reported=reported)
                name = f"Pollux {bounds}, load {factor:.0f}, {_words(reported)}"
                yield name, scene, GOALS.get((bounds, factor, reported))
    for (gpus, reported), goal in PHILLY_GOALS.items() if philly else ():
        scene = Scene(
            trace="philly_2weeks.csv.gz",
            nodes=gpus // 4,
            bounds="spec",
            days=7,
            max_duration=DAY if gpus == 256 else float("inf"),
            is_progress_reported=reported,
        )
        yield f"Philly {gpus} GPUs, {_words(reported)}", scene, goal


def _words(is_reported: bool) -> str:  # noqa: FBT001 - a word for a flag
    return "reported" if is_reported else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--traces", default=os.environ.get("TARRAGON_TRACES", ""), help="the folder with the traces")
    parser.add_argument("--policy", action="append", help="only these policies; default: those of the operator")
    parser.add_argument("--no-philly", action="store_true", help="only the Pollux traces")
    options = parser.parse_args()
    if not options.traces:
        print("no traces: name their folder with --traces or TARRAGON_TRACES")
        return
    policies = options.policy or [RIGID, *POLICIES]
    table = Table(
        "jobs", "progress", *policies, "goal of elastic", title="mean completion time (longest wait), seconds"
    )
    for name, scene, goal in scenes(philly=not options.no_philly):
        begin = time.perf_counter()
        cells = [cell(policy, scene, goal, Path(options.traces)) for policy in policies]
        table.add_row(*name.rsplit(", ", 1), *cells, f"{goal:,}" if goal else "")
        print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    Console(width=150).print(table)


def cell(policy: str, scene: Scene, goal: int | None, traces: Path) -> str:
    if policy == RIGID and scene.bounds != "rigid":
        return ""
    found = summarize(scene.comparison(traces).run(policy))
    is_missed = policy == "elastic" and goal is not None and found.jct.mean > goal
    return f"{found.jct.mean:,.0f} ({found.queueing.max:,.0f}){' !' if is_missed else ''}"


if __name__ == "__main__":
    main()
