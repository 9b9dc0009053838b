"""Reads images.yaml: for each pattern of image names a folder, or folder, entrypoint, workdir, env and paths."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from tarragon.base.errors import Problem
from tarragon.localcluster.kubelet.images import Environment, ImageMap, own_environment

_FIELDS = ("folder", "entrypoint", "workdir", "env", "paths")


def read_images(text: str, base: Path) -> tuple[ImageMap, list[Problem]]:
    """Folders are relative to `base`. What cannot be read is left out and told."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return ImageMap(), [Problem("images.yaml", f"is not YAML: {error}")]
    if not isinstance(document or {}, dict):
        return ImageMap(), [Problem("images.yaml", "must map image names to environments")]
    rules: list[tuple[str, Environment]] = []
    problems: list[Problem] = []
    for pattern, said in (document or {}).items():
        entry = {"folder": said} if isinstance(said, str) else said
        found = list(_faults(str(pattern), entry))
        problems += found
        if not found:
            rules.append((str(pattern), _environment(entry, base)))
    return ImageMap(rules=tuple(rules)), problems


def _environment(entry: dict[str, Any], base: Path) -> Environment:
    folder = entry.get("folder")
    return Environment(
        folder=(base / Path(folder).expanduser()) if folder else own_environment().folder,
        entrypoint=tuple(entry.get("entrypoint") or ()),
        workdir=entry.get("workdir") or "",
        env=entry.get("env") or {},
        paths=entry.get("paths") or {},
    )


def _faults(pattern: str, entry: Any) -> Iterator[Problem]:
    if not isinstance(entry, dict):
        yield Problem(pattern, f"must be a folder, or an object with some of {', '.join(_FIELDS)}")
        return
    for name, value in entry.items():
        if name not in _FIELDS:
            near = get_close_matches(str(name), _FIELDS, 1)
            yield Problem(f"{pattern}.{name}", "is not a known field", f"did you mean {near[0]}?" if near else "")
        elif name in {"folder", "workdir"} and not isinstance(value, str):
            yield Problem(f"{pattern}.{name}", "must be a path")
        elif name == "entrypoint" and not _is_list_of_texts(value):
            yield Problem(f"{pattern}.{name}", "must be a list of texts", "for example [python, /app/main.py]")
        elif name in {"env", "paths"} and not _is_map_of_texts(value):
            yield Problem(f"{pattern}.{name}", "must map texts to texts", "put numbers in quotes")


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_map_of_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for pair in value.items() for item in pair)
