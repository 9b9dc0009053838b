"""What an environment of this machine can run, found out from its files: importing TensorFlow takes seconds."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tarragon.localcluster.kubelet.images.images import Environment, own_environment

_PYTHON = re.compile(r"(?:^|[\s;|&/(])python(?:3(?:\.\d+)?)?(?:$|[\s;|&)])")


def python_of(environment: Environment) -> str:
    """Its interpreter, as one would call it to install something."""
    for name in ("python", "python3"):
        if (environment.programs / name).exists():
            return str(environment.programs / name)
    return "python3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Who made an environment, and what can change it. `uv` is how uv is called from here, empty without one."""

    folder: Path
    python: str
    has_pip: bool
    by_pipx: bool = False
    uv: str = ""


def installer(environment: Environment) -> str:
    """The beginning of a command that installs something into it."""
    return install_command(
        Made(
            folder=environment.folder,
            python=python_of(environment),
            has_pip=has_module(environment, "pip"),
            by_pipx=(environment.folder / "pipx_metadata.json").is_file(),
            uv=_uv(environment.folder.parent / ".tools/bin/uv"),
        )
    )


def install_command(made: Made) -> str:
    """In the tool that made it, as far as that can: `uv tool` and a checkout's `make` leave no pip in theirs. Pure."""
    python = shlex.quote(made.python)
    if made.by_pipx:
        return f"pipx runpip {shlex.quote(made.folder.name)} install"
    if made.has_pip:
        return f"{python} -m pip install"
    if made.uv:
        return f"{shlex.quote(made.uv)} pip install --python {python}"
    return f"{python} -m ensurepip && {python} -m pip install"


def _uv(of_checkout: Path) -> str:
    """The one on PATH, or the one that a checkout's `make` has fetched."""
    if shutil.which("uv"):
        return "uv"
    return str(of_checkout) if of_checkout.is_file() else ""


def has_module(environment: Environment, name: str) -> bool:
    """Of another environment only its own site-packages are seen; of one without a Python nobody knows."""
    if environment.folder == own_environment().folder:
        return importlib.util.find_spec(name) is not None
    if not (environment.programs / "python").exists() and not (environment.programs / "python3").exists():
        return True
    return any(
        (place / name).is_dir() or (place / f"{name}.py").is_file()
        for pattern in ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib64/python3*/site-packages")
        for place in Path(environment.folder).glob(pattern)
    )


def calls_python(command: Sequence[str]) -> bool:
    """Whether the command, or the shell line in it, starts a Python."""
    return any(_PYTHON.search(word) for word in command)
