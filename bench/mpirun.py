"""The time until 32 ranks of an MPIJob have met, beside the same mpirun by hand.

    python bench/mpirun.py [--rounds N]

Both start 32 ranks of mpi4py and wait for a barrier: mpirun by hand on this machine alone, an MPIJob from its launcher
in four workers with eight slots each, which it reaches by the agent of a process node. The clock starts with mpirun.
The two run in turns, so that other load affects both equally. Goal: within one second. Needs the extra `mpi`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PROGRAM = str(Path(sys.executable).parent / "tarragon")
GOAL = 1.0
WORKERS, SLOTS = 4, 8
RANKS = WORKERS * SLOTS
START = """
import os, sys, time
os.execvp("mpirun", ["mpirun", *sys.argv[2:], sys.executable, sys.argv[1], str(time.time())])
"""
RANK = """
import sys, time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    print(f"{MPI.COMM_WORLD.size} ranks met after {time.time() - float(sys.argv[1]):.3f} s", flush=True)
"""
MET = re.compile(rf"{RANKS} ranks met after ([\d.]+) s")
BY_HAND: Mapping[str, str] = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
"""What a process node gives to containers that start mpirun; else 32 ranks on few cores wait for each other."""


def manifest(folder: Path) -> str:
    def template(name: str, command: Sequence[str]) -> Mapping[str, object]:
        container = {"name": name, "image": "mpi", **({"command": command} if command else {})}
        return {"template": {"spec": {"containers": [container]}}}

    command = [sys.executable, "-c", START, str(folder / "rank.py"), "-n", str(RANKS)]
    specs = {"Launcher": template("launcher", command), "Worker": {**template("worker", []), "replicas": WORKERS}}
    return json.dumps(
        {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": {"name": "ranks"},
            "spec": {
                "slotsPerWorker": SLOTS,
                "launcherCreationPolicy": "WaitForWorkersReady",
                "runPolicy": {"cleanPodPolicy": "All"},
                "mpiReplicaSpecs": specs,
            },
        }
    )


def seconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        command, env={**os.environ, "PATH": path, **environment}, capture_output=True, text=True, check=False
    )
    found = MET.search(run.stdout)
    if run.returncode or found is None:
        raise SystemExit(f"{command[0]} has failed with {run.returncode}:\n{run.stdout}\n{run.stderr}")
    return float(found[1])


def summary(times: Sequence[float]) -> str:
    return f"{statistics.median(times):6.2f} s (median of {len(times)}; {min(times):.2f} to {max(times):.2f})"


def measure(folder: Path, rounds: int) -> None:
    (folder / "rank.py").write_text(RANK)
    (folder / "ranks.json").write_text(manifest(folder))
    home = {"TARRAGON_HOME": str(folder / "home")}
    hand = [sys.executable, "-c", START, str(folder / "rank.py"), "-n", str(RANKS), "--host", f"localhost:{RANKS}"]
    bare: list[float] = []
    ours: list[float] = []
    try:
        for _ in range(rounds):
            bare.append(seconds(hand, BY_HAND))
            ours.append(seconds([PROGRAM, "run", str(folder / "ranks.json")], home))
    finally:
        subprocess.run([PROGRAM, "down"], env={**os.environ, **home}, capture_output=True, check=False)
    more = statistics.median(one - other for one, other in zip(ours, bare, strict=True))
    print(f"mpirun by hand, {RANKS} ranks   {summary(bare)}")
    print(f"MPIJob, {WORKERS} workers         {summary(ours)}")
    print(f"  more, in pairs           {more:6.2f} s; goal: < {GOAL:.0f} s more")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), rounds)


if __name__ == "__main__":
    main()
