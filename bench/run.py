"""The overhead of `tarragon run` over the processes of a job, with a job whose four replicas do nothing.

    python bench/run.py [--rounds N]

A shell, and `tarragon run` with a running cluster, start the same four processes (chief, parameter server, two workers:
`true`) and wait for them. The two run in turns, so that other load affects both equally. The first run of a home, which
must start the cluster and create its certificates and store, is measured separately. Goal: less than a second more.
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
from pathlib import Path

PROGRAM = str(Path(sys.executable).parent / "tarragon")
GOAL = 1.0
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


def seconds(command: Sequence[str], home: Path) -> float:
    environment = {**os.environ, "TARRAGON_HOME": str(home)}
    begin = time.perf_counter()
    subprocess.run(command, env=environment, capture_output=True, check=True)
    return time.perf_counter() - begin


def summary(times: Sequence[float]) -> str:
    return f"{statistics.median(times):6.2f} s (median of {len(times)}; {min(times):.2f} to {max(times):.2f})"


def measure(folder: Path, rounds: int) -> None:
    (folder / "nothing.json").write_text(manifest())
    run = [PROGRAM, "run", str(folder / "nothing.json")]
    first: list[float] = []
    bare: list[float] = []
    ours: list[float] = []
    home = folder / "home"
    for number in range(FIRST_STARTS):
        if first:
            seconds([PROGRAM, "down"], home)
        home = folder / f"home-{number}"
        first.append(seconds(run, home))
    try:
        for _ in range(rounds):
            bare.append(seconds(SHELL, home))
            ours.append(seconds(run, home))
    finally:
        seconds([PROGRAM, "down"], home)
    more = statistics.median(one - other for one, other in zip(ours, bare, strict=True))
    print(f"four processes, shell      {summary(bare)}")
    print(f"tarragon run, cluster up   {summary(ours)}")
    print(f"  more, in pairs           {more:6.2f} s; goal: < {GOAL:.0f} s more")
    print(f"tarragon run, first start  {summary(first)}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), rounds)


if __name__ == "__main__":
    main()
