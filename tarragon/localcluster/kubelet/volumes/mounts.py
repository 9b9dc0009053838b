"""The local paths of a container's volume mounts, which cannot lead out of their volume."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from tarragon.localcluster.kubelet.base.errors import CannotStart
from tarragon.localcluster.kubelet.base.expansion import expand
from tarragon.localcluster.kubelet.base.spec import Container, VolumeMount

_TRIES = 5


class OutsideVolume(Exception):
    """A path leads out of its volume."""


def path_within(folder: Path, path: str) -> Path:
    """The path in the folder. Raises OutsideVolume when `..` or a symbolic link leads out of it."""
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise OutsideVolume(f"{path!r} must be a path within the volume")
    target = folder / path
    if not Path(os.path.realpath(target)).is_relative_to(os.path.realpath(folder)):
        raise OutsideVolume(f"{path!r} leads out of the volume")
    return target


def mount_folders(container: Container, volumes: Mapping[str, Path], variables: Mapping[str, str]) -> dict[str, Path]:
    """The local path of each mount path of the container. Raises CannotStart."""
    return {_normal(mount.mount_path): _mounted(mount, volumes, variables) for mount in container.volume_mounts}


def _normal(path: str) -> str:
    return "/" + path.strip("/")


def _mounted(mount: VolumeMount, volumes: Mapping[str, Path], variables: Mapping[str, str]) -> Path:
    volume = volumes.get(mount.name)
    if volume is None:
        raise CannotStart(f"volumeMounts {mount.mount_path}: the pod has no volume {mount.name!r}")
    sub_path = mount.sub_path or _expanded(mount.sub_path_expr, variables)
    if not sub_path:
        return volume
    try:
        target = path_within(volume, sub_path)
        if not target.exists():
            target.mkdir(parents=True)
    except OutsideVolume as error:
        raise CannotStart(f"failed to prepare subPath for volumeMount {mount.name!r}: {error}") from error
    except OSError as error:
        message = f"failed to create subPath {sub_path!r} of volume {mount.name!r}: {error.strerror}"
        raise CannotStart(message) from error
    return target


def _expanded(expression: str, variables: Mapping[str, str]) -> str:
    sub_path = expand(expression, variables)
    if "$(" in sub_path:
        raise CannotStart(f"missing value for subPathExpr {expression!r}: it names a variable that is not set")
    return sub_path


def remove_tree(folder: Path) -> None:
    """Remove a folder with all its content, even where containers have removed permissions."""
    for _ in range(_TRIES):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:  # also being removed elsewhere; the rest may be left to us
            if not folder.exists():
                return
        except OSError:  # no permission, or a process that was just killed has added a file
            _make_accessible(folder)
        else:
            return


def _make_accessible(folder: Path) -> None:
    for root, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(root, name)
            with contextlib.suppress(OSError):
                if not path.is_symlink():
                    path.chmod(stat.S_IRWXU)
