#!/usr/bin/env python3
"""How much of openb's 6,212 GPUs is allocated to tasks that ask for whole GPUs and for parts of one.

    python bench/packing.py [--traces FOLDER] [--seeds N] [--policy NAME]

The experiment of FGD (Weng et al., ATC 2023): tasks arrive in random order and never end, and those that do not fit are
dropped. Each cell is the mean over the seeds, with the least and the most.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tarragon.simulator.packing import (  # noqa: E402
    PACKING_BASELINES,
    READINGS,
    Packing,
    pack,
    read_packing_trace,
)

PUBLISHED = 0.952
"""What FGD allocates when the demand is as large as the cluster, by its authors' mean over ten seeds."""


def cell(found: Sequence[Packing], reading: float) -> str:
    values = [each.allocated[reading] for each in found]
    return f"{sum(values) / len(values):.2%} ({min(values):.2%} to {max(values):.2%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--policy", action="append", help="default: backfill and the baselines")
    parser.add_argument("--traces", default=os.environ.get("TARRAGON_TRACES"), help="folder; default TARRAGON_TRACES")
    options = parser.parse_args()
    if not options.traces:
        parser.error("there are no traces: set TARRAGON_TRACES or --traces")
    folder = Path(options.traces)
    trace = read_packing_trace(folder / "openb_pods.csv.gz", folder / "openb_nodes.csv.gz")
    table = Table(
        "policy", *(f"at {reading:.0%}" for reading in READINGS), title=f"allocated; FGD {PUBLISHED:.1%} at 100%"
    )
    for policy in options.policy or ["backfill", *PACKING_BASELINES]:
        found = [pack(trace, policy, seed) for seed in range(options.seeds)]
        table.add_row(policy, *(cell(found, reading) for reading in READINGS))
    Console(width=max(160, Console().width)).print(table)


if __name__ == "__main__":
    main()
