"""What `kubectl cp` needs of tar: members named as in the container, where their folder is another one here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from tarragon.localcluster.kubelet.base.processes import LINUX

_SPECIAL = re.compile(r"[][\\.*^$|]")


def with_names_of_the_container(
    said: Sequence[str], translated: Sequence[str], places: Mapping[str, Path]
) -> list[str]:
    """The words of a command, after their translation; only a tar of translated paths is told more.

    kubectl looks for its own path in what it gets, and takes an archive without it for a broken one.
    """
    if PurePosixPath(said[0] if said else "").name != "tar" or list(said) == list(translated):
        return list(translated)
    used = {path: place for path, place in places.items() if any(path in word for word in said[1:])}
    return [translated[0], *translated[1:], *(word for path, place in used.items() for word in _renaming(path, place))]


def _renaming(path: str, place: Path) -> list[str]:
    """In GNU tar's words, or, on macOS, in those of BSD's. Targets of symbolic links stay as they are."""
    here, there = _SPECIAL.sub(r"\\\g<0>", str(place).strip("/")), path.strip("/").replace("&", r"\&")
    if LINUX:
        return [f"--transform=flags=rhS;s|^/*{here}|{there}|"]
    return ["-s", f"|^/*{here}|{there}|RhS"]
