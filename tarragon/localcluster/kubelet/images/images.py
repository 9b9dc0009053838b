"""Maps image names to environments of this machine, as there is no container engine."""

from __future__ import annotations

import fnmatch
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tarragon.base.errors import Problem

_PYTHONS = tuple(f"{folder}/{name}" for folder in ("/usr/bin", "/usr/local/bin", "/opt/conda/bin", "/opt/venv/bin")
                 for name in ("python", "python3"))  # fmt: skip
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
"""What the folders of virtualenvs and of Conda's environments contain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A folder of programs, such as a virtualenv, and the settings of an image.

    `paths` maps paths within the image to local ones, which are relative to `folder` unless absolute.
    """

    folder: Path
    entrypoint: tuple[str, ...] = ()
    workdir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)

    @property
    def bin_folder(self) -> Path:
        """The folder that comes first on PATH."""
        inside = self.folder / "bin"
        return inside if inside.is_dir() else self.folder

    @property
    def has_python(self) -> bool:
        return any((self.bin_folder / name).exists() for name in ("python", "python3"))

    def search_path(self, callers: str) -> str:
        """PATH for its programs: its own folder, and the caller's PATH without other Python environments.

        It is as if somebody had activated the environment: programs of two would not fit each other, such as the mpirun
        of one and the mpi4py of the other. A folder without Python may need that of the caller's environment, and that
        of this program was not chosen by anybody.
        """
        folders = callers.split(os.pathsep)
        if self.has_python and self.folder != current_environment().folder:
            folders = [folder for folder in folders if not self._is_of_another(folder)]
        return os.pathsep.join([str(self.bin_folder), *folders])

    def _is_of_another(self, folder: str) -> bool:
        root = Path(folder).parent
        return root != self.folder and any((root / mark).exists() for mark in _ENVIRONMENT_MARKS)

    def local_paths(self) -> dict[str, Path]:
        """The local path of each mapped path of the image. Usual paths of Python map to the environment's Python."""
        pythons = {path: self.bin_folder / Path(path).name for path in _PYTHONS}
        mapped = {path: self.folder / place for path, place in self.paths.items()}
        return {path: place for path, place in pythons.items() if os.access(place, os.F_OK)} | mapped


def current_environment() -> Environment:
    """The environment that runs this program."""
    return Environment(folder=Path(sys.executable).absolute().parent.parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageMap:
    """Maps images by their first matching pattern. A pattern without a tag matches any tag."""

    rules: Sequence[tuple[str, Environment]] = ()
    default: Environment = field(default_factory=current_environment)

    def environment_of(self, image: str) -> Environment:
        return next((environment for _, environment in self._matches(image)), self.default)

    def is_default(self, image: str) -> bool:
        """Whether no pattern matches the image."""
        return next(self._matches(image), None) is None

    def _matches(self, image: str) -> Iterator[tuple[str, Environment]]:
        names = _names(image)
        return (
            (pattern, environment)
            for pattern, environment in self.rules
            if any(fnmatch.fnmatchcase(name, pattern) for name in names)
        )

    def with_folders(self, folders: Mapping[str, Path]) -> ImageMap:
        """The map with `--image-env IMAGE=FOLDER` applied: the folders take precedence, and other settings stay."""
        existing = dict(self.rules)
        overrides = [(image, _moved(existing.get(image), folder)) for image, folder in folders.items()]
        return ImageMap(rules=(*overrides, *self.rules), default=self.default)


def _moved(environment: Environment | None, folder: Path) -> Environment:
    if environment is None:
        return Environment(folder=folder)
    return Environment(
        folder=folder,
        entrypoint=environment.entrypoint,
        workdir=environment.workdir,
        env=environment.env,
        paths=environment.paths,
    )


def _names(image: str) -> Iterable[str]:
    """The image's name as written, and without the digest, the tag and Docker Hub's registry."""
    without_digest = image.partition("@")[0]
    head, _, last = without_digest.rpartition("/")
    without_tag = f"{head}/{last.partition(':')[0]}" if head else last.partition(":")[0]
    names = [image, without_digest, without_tag]
    for registry in ("docker.io/library/", "docker.io/"):
        names += [name.removeprefix(registry) for name in names if name.startswith(registry)]
    return dict.fromkeys(names)


def missing_command_problem(image: str, command: Sequence[str], images: ImageMap, path: str) -> Problem | None:
    """The problem of a container without a command and without a known entrypoint; `path` is its field path."""
    if command or images.environment_of(image).entrypoint:
        return None
    return Problem(
        f"{path}.command",
        f"is missing, and the entrypoint of the image {image or '(none)'} is not known on this machine",
        f"set the command, or map the image in images.yaml: {image or 'IMAGE'}: {{entrypoint: [python, /app/main.py]}}",
    )
