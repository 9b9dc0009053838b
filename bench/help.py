"""The duration of `tarragon --help` and of Tab, minus that of an empty Python program. Goals: 120 and 200 ms."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROUNDS = 15
PROGRAM = Path(sys.executable).parent / "tarragon"


TAB = {**os.environ, "_TARRAGON_COMPLETE": "bash_complete", "COMP_WORDS": "tarragon get ", "COMP_CWORD": "2"}


def milliseconds(command: Sequence[str | Path], environment: Mapping[str, str] = os.environ) -> float:
    start = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - start) * 1000


def main() -> None:
    nothing: list[float] = []
    helping: list[float] = []
    pressing: list[float] = []
    for _ in range(ROUNDS):  # in turns, so that other load affects all of them equally
        nothing.append(milliseconds([sys.executable, "-c", "pass"]))
        helping.append(milliseconds([PROGRAM, "--help"]))
        pressing.append(milliseconds([PROGRAM], TAB))
    base, total, tab = (statistics.median(times) for times in (nothing, helping, pressing))
    print(f"python -c pass   {base:6.0f} ms (median of {ROUNDS})")
    print(f"tarragon --help  {total:6.0f} ms, {total - base:.0f} ms more; goal: < 120 ms more")
    print(f"Tab for a JOB    {tab:6.0f} ms, {tab - base:.0f} ms more; goal: < 200 ms more")


if __name__ == "__main__":
    main()
