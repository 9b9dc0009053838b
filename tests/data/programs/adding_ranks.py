"""Ranks that add up their numbers again and again, and say at the end what that made.

mpirun python adding_ranks.py FOLDER STEPS [STEP AT WHICH THE LAST RANK FAILS]
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from alone import claim  # type: ignore[import-not-found]  # it is in this folder, from where Python runs this
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
STEPS = int(sys.argv[2])
FAILS_AT = int(sys.argv[3]) if sys.argv[3:] else STEPS

claim(Path(sys.argv[1]), f"rank-{WORLD.rank}")
total = 0
for step in range(STEPS):
    if step == FAILS_AT and WORLD.rank == WORLD.size - 1:
        print("no such data", file=sys.stderr, flush=True)
        os._exit(1)  # as a crash: at an exit, mpi4py waits for the other ranks
    total += WORLD.allreduce(WORLD.rank)
    time.sleep(0.1)  # noqa: TID251 - a program of a user
WORLD.barrier()
os.write(1, f"rank {WORLD.rank} of {WORLD.size}, sum {total}\n".encode())
