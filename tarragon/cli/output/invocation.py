"""How the user called tarragon, so that suggested commands can be pasted."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path


def invocation(argv0: str, executable: str, cwd: str, found_on_path: Callable[[str], str | None]) -> str:
    """Returns `tarragon` if PATH finds the running program, else the shortest path to it from `cwd`."""
    program = Path(argv0)
    if program.name == "__main__.py":
        return f"{_shortest(Path(executable), cwd, found_on_path)} -m tarragon"
    return _shortest(program if program.is_absolute() else Path(cwd, program), cwd, found_on_path)


def current_invocation() -> str:
    """Returns the invocation of this process."""
    program = sys.argv[0] if os.sep in sys.argv[0] else shutil.which(sys.argv[0]) or sys.argv[0]
    return invocation(program, sys.executable, str(Path.cwd()), shutil.which)


def _shortest(program: Path, cwd: str, found_on_path: Callable[[str], str | None]) -> str:
    on_path = found_on_path(program.name)
    if on_path is not None and Path(on_path).resolve() == program.resolve() and _is_same_folder(on_path, program):
        # kubectl finds its plugins on PATH.
        return "kubectl tarragon" if program.name == "kubectl-tarragon" else program.name
    if program.is_relative_to(cwd):
        relative = str(program.relative_to(cwd))
        return shlex.quote(relative if "/" in relative else f"./{relative}")
    return shlex.quote(str(program))


def _is_same_folder(on_path: str, program: Path) -> bool:
    """Whether both are in one folder. A virtualenv's python links to the system's: one file, two environments."""
    return Path(on_path).parent.resolve() == program.parent.resolve()
