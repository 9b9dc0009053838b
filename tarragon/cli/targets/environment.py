"""What a local Python environment can run, read from its files because importing TensorFlow takes seconds."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from tarragon import __version__
from tarragon.frameworks.image_software import ImageSoftware
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.kubelet.images.images import Environment, current_environment


def cluster_environment(place: Home) -> Environment:
    """Returns the environment that runs the local cluster, in which containers without another one run.

    It is this program's own if no cluster runs, or one of another version, which the next command replaces.
    """
    from tarragon.localcluster.home.lock import read_server

    server = read_server(place)
    if server is None or not server.environment or server.version != __version__ or not server.is_running():
        return current_environment()
    return Environment(folder=Path(server.environment))


def is_same_folder(one: Path, other: Path) -> bool:
    """Whether both are the same folder, also by a link."""
    try:
        return one.samefile(other)
    except OSError:  # one of them is gone
        return one == other


def python_of(environment: Environment) -> str:
    """Returns the environment's interpreter, for a command that installs packages."""
    for name in ("python", "python3"):
        if (environment.bin_folder / name).exists():
            return str(environment.bin_folder / name)
    return "python3"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallTools:
    """The tools that can install packages into an environment. `uv` is the command for uv; empty if there is none."""

    folder: Path
    python: str
    has_pip: bool
    is_pipx: bool = False
    uv: str = ""


def install_command_for(environment: Environment) -> str:
    """Returns the command that installs packages into the environment, without the packages."""
    return install_command(
        InstallTools(
            folder=environment.folder,
            python=python_of(environment),
            has_pip=has_module(environment, "pip"),
            is_pipx=(environment.folder / "pipx_metadata.json").is_file(),
            uv=_uv(environment.folder.parent / ".tools/bin/uv"),
        )
    )


def install_command(made: InstallTools) -> str:
    """Returns the install command of the tool that made the environment.

    `uv tool` and a checkout's `make` create environments without pip. Pure.
    """
    python = shlex.quote(made.python)
    if made.is_pipx:
        return f"pipx runpip {shlex.quote(made.folder.name)} install"
    if made.has_pip:
        return f"{python} -m pip install"
    if made.uv:
        return f"{shlex.quote(made.uv)} pip install --python {python}"
    return f"{python} -m ensurepip && {python} -m pip install"


def _uv(of_checkout: Path) -> str:
    """Returns uv from PATH, or the uv that a checkout's `make` downloaded; empty if there is none."""
    if shutil.which("uv"):
        return "uv"
    return str(of_checkout) if of_checkout.is_file() else ""


def has_module(environment: Environment, name: str) -> bool:
    """Whether the environment has the module.

    For other environments than ours, looks only into their site-packages. True where that is unknown.
    """
    if environment.folder == current_environment().folder:
        return importlib.util.find_spec(name) is not None
    if not environment.has_python or _uses_the_modules_of_the_system(environment):
        return True
    return any((place / name).is_dir() or (place / f"{name}.py").is_file() for place in _module_folders(environment))


def installed_versions(environment: Environment) -> dict[str, str]:
    """Returns the version of each package in the environment's site-packages, by its normalized name."""
    found = {}
    for place in _module_folders(environment):
        for metadata in place.glob("*.dist-info"):
            name, _, version = metadata.stem.partition("-")
            found[name.lower().replace("_", "-")] = version
    return found


def _module_folders(environment: Environment) -> Iterator[Path]:
    for pattern in ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib64/python3*/site-packages"):
        yield from Path(environment.folder).glob(pattern)


def _uses_the_modules_of_the_system(environment: Environment) -> bool:
    try:
        settings = (environment.folder / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(r"(?im)^include-system-site-packages\s*=\s*true", settings) is not None


def find_program(environment: Environment, name: str) -> Path | None:
    """Returns the program that containers of the environment find on their PATH."""
    found = shutil.which(name, path=environment.search_path(os.environ.get("PATH", os.defpath)))
    return Path(found) if found else None


def misfit_program(environment: Environment, software: ImageSoftware) -> Path | None:
    """Returns the program that containers find, if it is of another installation than its partner, the module.

    A program of the system fits, unless the environment has the library: the module finds the system's, too. Programs
    of other environments are on PATH only behind that of Tarragon.
    """
    found = find_program(environment, software.program) if software.partner else None
    if found is None or not environment.has_python or not has_module(environment, software.partner):
        return None
    if found.is_relative_to(environment.folder):
        return None
    has_library = any((environment.folder / "lib").glob(software.shared_library))
    return found if has_library or _is_in_an_environment(found) else None


def _is_in_an_environment(program: Path) -> bool:
    """Whether the program is one of a virtualenv or of Conda."""
    return any((program.parent.parent / mark).exists() for mark in ("pyvenv.cfg", "conda-meta"))


def has_software(environment: Environment, software: ImageSoftware) -> bool:
    if software.module:
        return has_module(environment, software.module)
    return find_program(environment, software.program) is not None


def needs_software(software: ImageSoftware, image: str, command: Sequence[str], imported: AbstractSet[str]) -> bool:
    """Whether a container with that image and command needs the software; `imported` are its scripts' modules."""
    is_there = software.image in image or software.module in imported
    return is_there and any(re.search(software.command, word) for word in command)
