"""Small files that are always whole: written beside and renamed, read as the type that is expected; and locks."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def write_json(path: Path, value: Any) -> None:
    """Survives the death of this process at any moment; not synced, as a crash of the machine ends all processes."""
    write_bytes(path, msgspec.json.encode(value))


def write_bytes(path: Path, data: bytes) -> None:
    beside = path.with_name(path.name + ".new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    beside.replace(path)


def read_json(path: Path, model: type[T]) -> T | None:
    """None when it is not there or can't be read as such."""
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
    """And close. A child that is just being started shares all descriptors for a moment, and would hold the lock."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
