"""Reads images.yaml, which maps patterns of image names to a folder, entrypoint, workdir, env and paths."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from tarragon.base.errors import Problem
from tarragon.localcluster.kubelet.images.images import Environment, ImageMap, current_environment

_FIELDS = ("folder", "entrypoint", "workdir", "env", "paths")


class _Loader(yaml.SafeLoader):
    """Rejects duplicate keys, of which YAML would silently ignore the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise yaml.MarkedYAMLError(
                    problem=f"duplicate key {name}", problem_mark=node.value[index][0].start_mark
                )
        return super().construct_mapping(node, deep)


def read_image_file(path: Path, default: Environment | None = None) -> tuple[ImageMap, list[Problem]]:
    """Read the file; an empty map if it does not exist. Folders are relative to the file's folder.

    Images without a folder of their own map to `default`, the environment that runs this program if none is given.
    """
    default = default or current_environment()
    try:
        return read_images(path.read_text(encoding="utf-8"), path.parent, default)
    except FileNotFoundError:
        return ImageMap(default=default), []
    except OSError as error:
        return ImageMap(default=default), [Problem(path.name, f"can't be read: {error.strerror}")]
    except UnicodeDecodeError:
        return ImageMap(default=default), [Problem(path.name, "can't be read: it is not UTF-8 text")]


def read_images(text: str, base: Path, default: Environment | None = None) -> tuple[ImageMap, list[Problem]]:
    """Parse the text of images.yaml. Folders are relative to `base`. Invalid entries are left out and reported."""
    default = default or current_environment()
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 - a safe one
    except yaml.MarkedYAMLError as error:
        position = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        return ImageMap(), [Problem("images.yaml", f"is not valid YAML: {position}{error.problem}")]
    except yaml.YAMLError as error:
        return ImageMap(), [Problem("images.yaml", f"is not valid YAML: {str(error).splitlines()[0]}")]
    except RecursionError:
        return ImageMap(), [Problem("images.yaml", "is not valid YAML: it is nested too deeply")]
    if not isinstance(document or {}, dict):
        return ImageMap(), [Problem("images.yaml", "must map image names to environments")]
    rules: list[tuple[str, Environment]] = []
    problems: list[Problem] = []
    for pattern, value in (document or {}).items():
        entry = {"folder": value} if isinstance(value, str) else value
        entry_problems = list(_problems(str(pattern), entry))
        problems += entry_problems
        if not entry_problems:
            rules.append((str(pattern), _environment(entry, base, default)))
    return ImageMap(rules=tuple(rules), default=default), problems


def _environment(entry: dict[str, Any], base: Path, default: Environment) -> Environment:
    folder = entry.get("folder")
    return Environment(
        folder=(base / Path(folder).expanduser()) if folder else default.folder,
        entrypoint=tuple(entry.get("entrypoint") or ()),
        workdir=entry.get("workdir") or "",
        env=entry.get("env") or {},
        paths=entry.get("paths") or {},
    )


def _problems(pattern: str, entry: Any) -> Iterator[Problem]:
    if not isinstance(entry, dict):
        yield Problem(pattern, f"must be a folder, or an object with some of {', '.join(_FIELDS)}")
        return
    for name, value in entry.items():
        if name not in _FIELDS:
            similar = get_close_matches(str(name), _FIELDS, 1)
            yield Problem(f"{pattern}.{name}", "is not a known field", f"did you mean {similar[0]}?" if similar else "")
        elif name in {"folder", "workdir"} and not isinstance(value, str):
            yield Problem(f"{pattern}.{name}", "must be a path")
        elif name == "entrypoint" and not _is_list_of_strings(value):
            yield Problem(f"{pattern}.{name}", "must be a list of strings", "for example [python, /app/main.py]")
        elif name in {"env", "paths"} and not _is_map_of_strings(value):
            yield Problem(f"{pattern}.{name}", "must map strings to strings", "put numbers in quotes")
        elif name == "paths" and (relative := [path for path in value if not path.startswith("/")]):
            yield Problem(f"{pattern}.{name}", f"{relative[0]} must be an absolute path within the image")


def _is_list_of_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_map_of_strings(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for pair in value.items() for item in pair)
