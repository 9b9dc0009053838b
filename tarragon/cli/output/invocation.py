"""How this user starts tarragon, so that every command we suggest works when it is pasted."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path


def invocation(argv0: str, executable: str, cwd: str, found_on_path: Callable[[str], str | None]) -> str:
    """`tarragon` where PATH leads to the one that runs, else the shortest spelling that leads there from `cwd`."""
    program = Path(argv0)
    if program.name == "__main__.py":
        return f"{_spelled(Path(executable), cwd, found_on_path)} -m tarragon"
    return _spelled(program if program.is_absolute() else Path(cwd, program), cwd, found_on_path)


def here() -> str:
    """Of this process."""
    program = sys.argv[0] if os.sep in sys.argv[0] else shutil.which(sys.argv[0]) or sys.argv[0]
    return invocation(program, sys.executable, str(Path.cwd()), shutil.which)


def _spelled(program: Path, cwd: str, found_on_path: Callable[[str], str | None]) -> str:
    on_path = found_on_path(program.name)
    if on_path is not None and Path(on_path).resolve() == program.resolve() and _same_folder(on_path, program):
        # kubectl finds its plugins on PATH.
        return "kubectl tarragon" if program.name == "kubectl-tarragon" else program.name
    if program.is_relative_to(cwd):
        near = str(program.relative_to(cwd))
        return shlex.quote(near if "/" in near else f"./{near}")
    return shlex.quote(str(program))


def _same_folder(on_path: str, program: Path) -> bool:
    """A virtualenv's python is a link to the system's: the same file, and yet another environment."""
    return Path(on_path).parent.resolve() == program.parent.resolve()
