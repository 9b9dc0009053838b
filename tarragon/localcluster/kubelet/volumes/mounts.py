"""Where the mount paths of a container are on this machine, and how not to leave a volume by accident."""

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


class OutOfBounds(Exception):
    """A path leads out of its volume."""


def within(folder: Path, path: str) -> Path:
    """Neither `..` nor a symbolic link leads out of a volume. Raises OutOfBounds."""
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise OutOfBounds(f"{path!r} must be a path within the volume")
    target = folder / path
    if not Path(os.path.realpath(target)).is_relative_to(os.path.realpath(folder)):
        raise OutOfBounds(f"{path!r} leads out of the volume")
    return target


def places(container: Container, volumes: Mapping[str, Path], variables: Mapping[str, str]) -> dict[str, Path]:
    """Where each mount path of the container is. Raises CannotStart."""
    return {_normal(mount.mount_path): _mounted(mount, volumes, variables) for mount in container.volume_mounts}


def _normal(path: str) -> str:
    return "/" + path.strip("/")


def _mounted(mount: VolumeMount, volumes: Mapping[str, Path], variables: Mapping[str, str]) -> Path:
    volume = volumes.get(mount.name)
    if volume is None:
        raise CannotStart(f"volumeMounts {mount.mount_path}: the pod has no volume {mount.name!r}")
    below = mount.sub_path or _expanded(mount.sub_path_expr, variables)
    if not below:
        return volume
    try:
        target = within(volume, below)
        if not target.exists():
            target.mkdir(parents=True)
    except OutOfBounds as error:
        raise CannotStart(f"failed to prepare subPath for volumeMount {mount.name!r}: {error}") from error
    except OSError as error:
        raise CannotStart(f"failed to create subPath {below!r} of volume {mount.name!r}: {error.strerror}") from error
    return target


def _expanded(expression: str, variables: Mapping[str, str]) -> str:
    below = expand(expression, variables)
    if "$(" in below:
        raise CannotStart(f"missing value for subPathExpr {expression!r}: it names a variable that is not set")
    return below


def remove(folder: Path) -> None:
    """A folder with all that containers have left there, even where they have taken away permissions."""
    for _ in range(_TRIES):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:  # somebody else removes it, too; what is still there may be left to us
            if not folder.exists():
                return
        except OSError:  # no permission; or a process that was just killed has added something in its last moment
            _permit(folder)
        else:
            return


def _permit(folder: Path) -> None:
    for root, folders, _ in os.walk(folder):
        for name in folders:
            below = Path(root, name)
            with contextlib.suppress(OSError):
                if not below.is_symlink():
                    below.chmod(stat.S_IRWXU)
