"""Writes the examples out, so that their reader can run and change them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tarragon.base.errors import TarragonError
from tarragon.cli.bundled.files import bundled_folder


class ExamplesExist(TarragonError):
    """Files with the names of examples exist, and may be somebody's work."""


def example_files() -> Sequence[Path]:
    """Returns the paths of all examples, relative to their folder."""
    folder = bundled_folder("examples")
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(path.relative_to(folder) for path in found)


def manifests() -> Sequence[tuple[Path, str]]:
    """Returns the jobs among the examples, with the first line of comment in each."""
    found = []
    for path in example_files():
        if path.suffix == ".yaml":
            first = (bundled_folder("examples") / path).read_text(encoding="utf-8").partition("\n")[0]
            found.append((path, first.removeprefix("# ") if first.startswith("# ") else ""))
    return found


def write_examples(folder: Path, *, replace: bool) -> None:
    """Writes all examples into the folder. Raises ExamplesExist before the first is written, or TarragonError."""
    files = example_files()
    existing = [path for path in files if (folder / path).exists()]
    if existing and not replace:
        raise ExamplesExist(
            f"{folder / existing[0]} exists already",
            why="you may have changed it; nothing was written",
            remedy="name another folder, or overwrite the examples in this one with --force",
        )
    try:
        for path in files:
            content = (bundled_folder("examples") / path).read_bytes()
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise TarragonError(f"the examples can't be written to {folder}", why=why, remedy="name another one") from error
