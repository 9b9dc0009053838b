"""The duration of `tarragon list` on a running cluster of this machine, and of an empty Python program.

With an argument, the path of another checkout, both are measured in turns. Goal: half of what it took before it read
without aiohttp.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROUNDS = 15
PROGRAM = [sys.executable, "-m", "tarragon"]
HERE = Path(__file__).parent.parent


def timed(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Returns the milliseconds of the wall clock and of the processor."""
    start = time.perf_counter()
    process = subprocess.Popen(command, env=environment, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} ended with status {status}")
    return (time.perf_counter() - start) * 1000, (usage.ru_utime + usage.ru_stime) * 1000


def main(others: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "TARRAGON_HOME": home}
        subprocess.run([*PROGRAM, "kubeconfig"], env=environment, stdout=subprocess.DEVNULL, check=True)
        commands = {"python -c pass": ([sys.executable, "-c", "pass"], environment)}
        for tree in (*others, str(HERE)):
            commands[f"list of {tree}"] = ([*PROGRAM, "list"], {**environment, "PYTHONPATH": tree})
        durations: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        try:
            for _ in range(ROUNDS):  # in turns, so that other load affects all of them equally
                for name, (command, variables) in commands.items():
                    durations[name].append(timed(command, variables))
        finally:
            subprocess.run([*PROGRAM, "down"], env=environment, check=True)
    for name, found in durations.items():
        wall, processor = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{name:40} {wall:6.0f} ms, of the processor {processor:6.0f} ms (medians of {ROUNDS})")


if __name__ == "__main__":
    main(sys.argv[1:])
