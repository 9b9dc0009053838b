"""The overhead of `tarragon run` over the processes of a job, with a job whose four replicas do nothing.

    python bench/run.py [--rounds N] [--against CHECKOUT]

A shell, and `tarragon run` with a running cluster, start the same four processes (chief, parameter server, two workers:
`true`) and wait for them. The two run in turns, so that other load affects both equally. The first run of a home, which
must start the cluster and create its certificates and store, is measured separately. With --against, another checkout
is measured in the same turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent.parent
GOAL, WARM_GOAL, FIRST_GOAL = 1.0, 0.8, 2.5
"""Seconds."""
SHELL = ["sh", "-c", "true & true & true & true & wait"]
FIRST_STARTS = 3


def manifest() -> str:
    def replicas(count: int) -> Mapping[str, object]:
        container = {"name": "tensorflow", "image": "busybox", "command": ["true"]}
        return {"replicas": count, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}

    specs = {"Chief": replicas(1), "PS": replicas(1), "Worker": replicas(2)}
    return json.dumps(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "metadata": {"name": "nothing"},
            "spec": {"tfReplicaSpecs": specs},
        }
    )


@dataclass(frozen=True, slots=True)
class Checkout:
    """A tree of this project, with homes of its own below a folder."""

    tree: Path
    folder: Path

    def seconds(self, home: str, *words: str) -> float:
        """Return how long the command took with that home."""
        own = {"TARRAGON_HOME": str(self.folder / home), "PYTHONPATH": str(self.tree)}
        begin = time.perf_counter()
        # From elsewhere: `python -m` searches the current folder first.
        command = [sys.executable, "-m", "tarragon", *words]
        subprocess.run(command, env={**os.environ, **own}, cwd=self.folder, capture_output=True, check=True)
        return time.perf_counter() - begin


def summary(times: Sequence[float]) -> str:
    return f"{statistics.median(times):6.2f} s (median of {len(times)}; {min(times):.2f} to {max(times):.2f})"


def bare_seconds() -> float:
    begin = time.perf_counter()
    subprocess.run(SHELL, check=True)
    return time.perf_counter() - begin


Times = Mapping[Checkout, list[float]]


def first_starts(checkouts: Sequence[Checkout], run: Sequence[str]) -> Times:
    """Measure runs in homes that have never had a cluster."""
    times: Times = {each: [] for each in checkouts}
    for number in range(FIRST_STARTS):
        for each in checkouts:
            times[each].append(each.seconds(f"home-{number}", *run))
            each.seconds(f"home-{number}", "down")
    return times


def on_running_clusters(checkouts: Sequence[Checkout], run: Sequence[str], rounds: int) -> tuple[list[float], Times]:
    """Measure the shell, and runs where the cluster runs, in turns."""
    bare: list[float] = []
    times: Times = {each: [] for each in checkouts}
    try:
        for each in checkouts:
            each.seconds("home", *run)
        for _ in range(rounds):
            bare.append(bare_seconds())
            for each in checkouts:
                times[each].append(each.seconds("home", *run))
    finally:
        for each in checkouts:
            each.seconds("home", "down")
    return bare, times


def measure(trees: Sequence[Path], folder: Path, rounds: int) -> None:
    (folder / "nothing.json").write_text(manifest())
    run = ("run", str(folder / "nothing.json"))
    checkouts = [Checkout(tree, folder / str(number)) for number, tree in enumerate(trees)]
    for each in checkouts:
        each.folder.mkdir()
    first = first_starts(checkouts, run)
    bare, warm = on_running_clusters(checkouts, run, rounds)
    print(f"four processes, shell      {summary(bare)}")
    for each in checkouts:
        more = statistics.median(one - other for one, other in zip(warm[each], bare, strict=True))
        print(f"\n{each.tree}")
        print(f"tarragon run, cluster up   {summary(warm[each])}; goal: < {WARM_GOAL} s")
        print(f"  more, in pairs           {more:6.2f} s; goal: < {GOAL:.0f} s more")
        print(f"tarragon run, first start  {summary(first[each])}; goal: < {FIRST_GOAL} s")
    print(f"\nload {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--against", type=Path, action="append", default=[], help="another checkout, in turns")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure([*map(Path.absolute, given.against), HERE], Path(folder), given.rounds)


if __name__ == "__main__":
    main()
