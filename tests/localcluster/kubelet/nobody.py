"""Runs code as an unprivileged user, in a child of this process."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


def as_nobody(do: Callable[[], object]) -> None:
    """Run code as another user by a fork: the tests' Python may be in a folder that other users cannot read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the test runner has threads; the child needs none of them
        child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.getuid() == 0:
                os.setuid(NOBODY)
            do()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user can write to; pytest's own folders are private."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
