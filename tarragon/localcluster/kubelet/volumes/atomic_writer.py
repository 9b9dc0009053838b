"""Writes a volume's files atomically: readers see all old or all new files, never a mixture.

The layout is that of Kubernetes, as programs watch for it: each name is a link into `..data`, which is a link to the
folder with the current files and is replaced atomically.
"""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tarragon.localcluster.kubelet.volumes.mounts import path_within

DATA = "..data"
_MODE = 0o755


@dataclass(frozen=True, slots=True)
class File:
    data: bytes
    mode: int


def has_layout(place: Path) -> bool:
    """Whether the folder has this module's layout."""
    return (place / DATA).is_symlink()


def write_files(place: Path, files: Mapping[str, File]) -> None:
    """Make the folder show exactly these files, by path. The rest of an interrupted attempt is replaced."""
    if not has_layout(place) or _current(place) != dict(files):
        _write_version(place, files)
    # Even if the files are the same: an attempt may have been interrupted right after it had written them.
    _link_names(place, {Path(name).parts[0] for name in files})
    _remove_old_versions(place)


def _write_version(place: Path, files: Mapping[str, File]) -> None:
    if place.exists() and not has_layout(place):
        shutil.rmtree(place)
    place.mkdir(mode=_MODE, parents=True, exist_ok=True)
    version = Path(tempfile.mkdtemp(prefix="..", dir=place))
    version.chmod(_MODE)
    _fill(version, files)
    _link(place / DATA, Path(version.name))


def _remove_old_versions(place: Path) -> None:
    current = (place / DATA).readlink().name
    for version in place.glob("..*"):
        if version.name != current and not version.is_symlink():
            shutil.rmtree(version)


def _fill(folder: Path, files: Mapping[str, File]) -> None:
    for name, file in files.items():
        target = path_within(folder, name)
        target.parent.mkdir(mode=_MODE, parents=True, exist_ok=True)
        target.write_bytes(file.data)
        target.chmod(file.mode)


def _link(path: Path, target: Path) -> None:
    """Create or replace a symbolic link atomically."""
    temporary = path.with_name(f"{DATA}_tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(path)


def _link_names(place: Path, names: set[str]) -> None:
    for name in names:
        if not (place / name).is_symlink():
            _link(place / name, Path(DATA) / name)
    for path in place.iterdir():
        if path.name not in names and _is_link_of_name(path):
            path.unlink()


def _is_link_of_name(path: Path) -> bool:
    """Whether this module made the link. Programs may put files of their own beside it, such as `__pycache__`."""
    return path.is_symlink() and path.readlink().parts[:1] == (DATA,)


def _current(place: Path) -> dict[str, File]:
    return dict(_files(place / (place / DATA).readlink()))


def _files(folder: Path) -> Iterator[tuple[str, File]]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path.relative_to(folder)), File(path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
