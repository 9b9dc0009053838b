"""Makes tar name archive members by the container's paths, as `kubectl cp` expects."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from tarragon.localcluster.kubelet.base.processes import LINUX

_SPECIAL = re.compile(r"[][\\.*^$|]")


def keep_member_names(original: Sequence[str], translated: Sequence[str], places: Mapping[str, Path]) -> list[str]:
    """The translated words of a command; a tar of translated paths gets options that rename its members.

    kubectl rejects an archive without the path that it asked for.
    """
    if PurePosixPath(original[0] if original else "").name != "tar" or list(original) == list(translated):
        return list(translated)
    used = {path: place for path, place in places.items() if any(path in word for word in original[1:])}
    options = [option for path, place in used.items() for option in _rename_options(path, place)]
    return [translated[0], *translated[1:], *options]


def _rename_options(path: str, place: Path) -> list[str]:
    """Options of GNU tar, or of BSD tar on macOS. Targets of symbolic links are not renamed."""
    local, original = _SPECIAL.sub(r"\\\g<0>", str(place).strip("/")), path.strip("/").replace("&", r"\&")
    if LINUX:
        return [f"--transform=flags=rhS;s|^/*{local}|{original}|"]
    return ["-s", f"|^/*{local}|{original}|RhS"]
