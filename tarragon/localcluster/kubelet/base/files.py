"""Atomic writes and typed reads of small files, and file locks."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def write_json(path: Path, value: Any) -> None:
    """Replace the file atomically. It is not synced, as a crash of the machine ends all containers anyway."""
    write_bytes(path, msgspec.json.encode(value))


def write_bytes(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)


def read_json(path: Path, model: type[T]) -> T | None:
    """The file decoded as `model`; None when it is missing or does not decode."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=model)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None


def try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Unlock and close. A close alone could leave it locked, as a child that is being started shares the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
