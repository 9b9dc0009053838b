"""What an environment of this machine can run, found out from its files: importing TensorFlow takes seconds."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from tarragon.localcluster.kubelet.images import Environment, own_environment

_PYTHON = re.compile(r"(?:^|[\s;|&/(])python(?:3(?:\.\d+)?)?(?:$|[\s;|&)])")


def python_of(environment: Environment) -> str:
    """Its interpreter, as one would call it to install something."""
    for name in ("python", "python3"):
        if (environment.programs / name).exists():
            return str(environment.programs / name)
    return "python3"


def installer(environment: Environment) -> str:
    """The beginning of a command that installs something into it. Virtualenvs that uv made have no pip."""
    python = shlex.quote(python_of(environment))
    if has_module(environment, "pip"):
        return f"{python} -m pip install"
    if shutil.which("uv"):
        return f"uv pip install --python {python}"
    return f"{python} -m ensurepip && {python} -m pip install"


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
