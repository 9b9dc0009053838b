"""Finds out what of the limits on shared GPUs this machine supports: a CUDA MPS daemon, and the version of PyTorch."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

from tarragon.kube.scheduling.gpu_limits import MPS_PIPES

_DEFAULT_MPS_FOLDER = "/tmp/nvidia-mps"  # noqa: S108 - NVIDIA's default


def mps_pipe_directory(environment: Mapping[str, str]) -> Path | None:
    """The pipe directory of the MPS control daemon that CUDA programs of this environment find; None without one."""
    folder = Path(environment.get(MPS_PIPES) or _DEFAULT_MPS_FOLDER)
    return folder if _has_reader(folder / "control") else None


def _has_reader(path: Path) -> bool:
    """Whether a process listens at the socket or reads from the pipe. One that was killed leaves the file behind."""
    with contextlib.suppress(OSError):
        kind = path.stat().st_mode
        if stat.S_ISFIFO(kind):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
            return True
        if stat.S_ISSOCK(kind):
            return _is_listening(path)
    return False


def _is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except OSError as error:
            # The queue of the listener is full, or it wants another type of socket.
            return error.errno in {errno.EAGAIN, errno.EPROTOTYPE}
        return True


def torch_version(environment: Path) -> tuple[int, int] | None:
    """The version of PyTorch in a folder of programs, such as a virtualenv; None if it is not there."""
    for found in sorted(environment.glob("lib/python3*/site-packages/torch-*.dist-info")):
        if match := re.match(r"torch-(\d+)\.(\d+)", found.name):
            return int(match[1]), int(match[2])
    return None
