"""Virtualenvs for what the tests' own environment cannot hold beside itself, made once from a package index."""

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


def virtualenv(folder: Path, *packages: str) -> Path:
    """The folder, with the packages installed for the Python of the tests. Skips the test if there is no index."""
    named = folder.with_name(f"{folder.name}-python{sys.version_info.major}.{sys.version_info.minor}")
    if fault := _fault(named, packages):
        pytest.skip(f"{', '.join(packages)} cannot be installed here: {fault}")
    return named


@functools.cache
def _fault(folder: Path, packages: tuple[str, ...]) -> str:
    """Why it could not be made; empty if it is there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:  # several processes run tests
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / ".complete").exists():
            return ""
        shutil.rmtree(folder, ignore_errors=True)
        for command in _commands(folder, packages):
            result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
            if result.returncode:
                return " ".join(result.stderr.split()[-60:])
        (folder / ".complete").touch()
    return ""


def _commands(folder: Path, packages: tuple[str, ...]) -> list[list[str]]:
    uv = shutil.which("uv", path=f"{ROOT / '.tools/bin'}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv:
        python = str(folder / "bin/python")
        return [
            [uv, "venv", "-q", "--no-project", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "-q", "--python", python, *packages],
        ]
    pip = [str(folder / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    return [[sys.executable, "-m", "venv", str(folder)], [*pip, *packages]]
