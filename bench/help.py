"""How long `tarragon --help` takes, beyond a Python that does nothing. Goal: less than 120 ms more."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROUNDS = 15
PROGRAM = Path(sys.executable).parent / "tarragon"


def milliseconds(command: Sequence[str | Path]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - start) * 1000


def main() -> None:
    nothing: list[float] = []
    helping: list[float] = []
    for _ in range(ROUNDS):  # in turns, so that other load hits both alike
        nothing.append(milliseconds([sys.executable, "-c", "pass"]))
        helping.append(milliseconds([PROGRAM, "--help"]))
    base, total = statistics.median(nothing), statistics.median(helping)
    print(f"python -c pass   {base:6.0f} ms (median of {ROUNDS})")
    print(f"tarragon --help  {total:6.0f} ms, {total - base:.0f} ms more; goal: < 120 ms more")


if __name__ == "__main__":
    main()
