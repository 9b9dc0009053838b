"""Ranks that wait for a file, then say who they are and what all of them have added up.

mpirun python ranks.py FILE
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from mpi4py import MPI

WORLD = MPI.COMM_WORLD

WORLD.barrier()
if WORLD.rank == 0:
    print("all are there", flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)  # noqa: TID251 - a program of a user
print(f"rank {WORLD.rank} of {WORLD.size}, sum {WORLD.allreduce(WORLD.rank)}", flush=True)
