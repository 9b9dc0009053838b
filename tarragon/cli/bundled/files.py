"""Finds the folders of files that the package brings along."""

from __future__ import annotations

from pathlib import Path

from tarragon.base.errors import TarragonError

_PROJECT = Path(__file__).parents[3]


def bundled_folder(name: str) -> Path:
    """Returns the folder `docs` or `examples`: of the installed package, or of the checkout, which has it once.

    Raises TarragonError if there is none.
    """
    found = next((place for place in (Path(__file__).parent / name, _PROJECT / name) if place.is_dir()), None)
    if found is None:
        raise TarragonError(
            f"this installation has no {name}", why="the operator's image leaves them out", remedy="use that of pip"
        )
    return found
