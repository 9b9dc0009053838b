"""Folders of files that change as a whole: whoever reads them sees the old ones or the new ones, never some of both.

Laid out as in any Kubernetes, since programs watch for it: each name is a link into `..data`, which is a link to the
folder with the present files, and is replaced at one stroke.
"""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tarragon.localcluster.kubelet.volumes.mounts import within

DATA = "..data"
_MODE = 0o755


@dataclass(frozen=True, slots=True)
class File:
    data: bytes
    mode: int


def is_written(place: Path) -> bool:
    """Whether there are files that can be replaced."""
    return (place / DATA).is_symlink()


def write(place: Path, files: Mapping[str, File]) -> None:
    """A folder with exactly these files, by path. What an interrupted first attempt has left is made anew."""
    if is_written(place) and _present(place) == dict(files):
        return
    if place.exists() and not is_written(place):
        shutil.rmtree(place)
    place.mkdir(mode=_MODE, parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=place))
    fresh.chmod(_MODE)
    _fill(fresh, files)
    _link(place / DATA, Path(fresh.name))
    _show(place, {Path(name).parts[0] for name in files})
    for old in place.glob("..*"):
        if old.name != fresh.name and not old.is_symlink():
            shutil.rmtree(old)


def _fill(folder: Path, files: Mapping[str, File]) -> None:
    for name, file in files.items():
        target = within(folder, name)
        target.parent.mkdir(mode=_MODE, parents=True, exist_ok=True)
        target.write_bytes(file.data)
        target.chmod(file.mode)


def _link(path: Path, target: Path) -> None:
    """At one stroke."""
    beside = path.with_name(f"{DATA}_tmp")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    beside.replace(path)


def _show(place: Path, names: set[str]) -> None:
    for name in names:
        if not (place / name).is_symlink():
            _link(place / name, Path(DATA) / name)
    for path in place.iterdir():
        if path.name not in names and not path.name.startswith(".."):
            path.unlink()


def _present(place: Path) -> dict[str, File]:
    return dict(_files(place / (place / DATA).readlink()))


def _files(folder: Path) -> Iterator[tuple[str, File]]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path.relative_to(folder)), File(path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
