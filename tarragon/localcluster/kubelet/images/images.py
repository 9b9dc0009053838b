"""What an image name stands for where there is no container engine: an environment of this machine."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tarragon.base.errors import Problem

_PYTHONS = tuple(f"{folder}/{name}" for folder in ("/usr/bin", "/usr/local/bin", "/opt/conda/bin", "/opt/venv/bin")
                 for name in ("python", "python3"))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A folder of programs, such as a virtualenv, and what an image says besides.

    `paths` are paths within the image and where they are here; a relative place is below `folder`.
    """

    folder: Path
    entrypoint: tuple[str, ...] = ()
    workdir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)

    @property
    def programs(self) -> Path:
        """What comes first on PATH."""
        inside = self.folder / "bin"
        return inside if inside.is_dir() else self.folder

    def places(self) -> dict[str, Path]:
        """All paths of the image that have a place here. An image's Python is the environment's, wherever it was."""
        pythons = {path: self.programs / Path(path).name for path in _PYTHONS}
        named = {path: self.folder / place for path, place in self.paths.items()}
        return {path: place for path, place in pythons.items() if place.exists()} | named


def own_environment() -> Environment:
    """The environment that runs this program."""
    return Environment(folder=Path(sys.executable).absolute().parent.parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageMap:
    """The first pattern that fits an image counts. `tensorflow/tensorflow` fits it with any tag."""

    rules: Sequence[tuple[str, Environment]] = ()
    default: Environment = field(default_factory=own_environment)

    def environment(self, image: str) -> Environment:
        names = _names(image)
        for pattern, environment in self.rules:
            if any(fnmatch.fnmatchcase(name, pattern) for name in names):
                return environment
        return self.default

    def with_folders(self, folders: Mapping[str, Path]) -> ImageMap:
        """The map after `--env IMAGE=FOLDER`: these win; what the map says of the image besides stays."""
        known = dict(self.rules)
        ahead = [(image, _moved(known.get(image), folder)) for image, folder in folders.items()]
        return ImageMap(rules=(*ahead, *self.rules), default=self.default)


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
    """The image as written, and without what people leave out: digest, tag, Docker's own registry."""
    plain = image.partition("@")[0]
    head, _, last = plain.rpartition("/")
    untagged = f"{head}/{last.partition(':')[0]}" if head else last.partition(":")[0]
    names = [image, plain, untagged]
    for registry in ("docker.io/library/", "docker.io/"):
        names += [name.removeprefix(registry) for name in names if name.startswith(registry)]
    return dict.fromkeys(names)


def lacks_command(image: str, command: Sequence[str], images: ImageMap, path: str) -> Problem | None:
    """The Problem of a container of which nobody knows what it should start; `path` is that of the container."""
    if command or images.environment(image).entrypoint:
        return None
    return Problem(
        f"{path}.command",
        f"is missing, and what the image {image or '(none)'} starts by itself is not known on this machine",
        f"write the command, or say it once for all in images.yaml: {image or 'IMAGE'}: "
        "{entrypoint: [python, /app/main.py]}",
    )
