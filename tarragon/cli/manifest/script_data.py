"""Finds data of this machine that a script uses and that does not travel to a cluster with it.

As in `local_paths`, false warnings teach users to ignore warnings. So a name counts only if it exists here, and if it
is an argument of the script, or is passed to a function that reads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

_READERS = frozenset(
    {
        *("open", "Path", "glob", "iglob", "listdir", "scandir", "walk", "join", "load", "loadtxt", "genfromtxt"),
        *("read_csv", "read_table", "read_json", "read_parquet", "read_pickle", "read_excel", "load_model"),
        *("image_dataset_from_directory", "text_dataset_from_directory", "load_from_disk"),
        *("TFRecordDataset", "TextLineDataset", "ImageFolder", "flow_from_directory"),
    }
)
_MAKERS = frozenset({"mkdir", "makedirs"})
"""A folder that the script makes need not travel."""
_NUMBER = re.compile(r"[-+.\d]*")
_LONGEST = 200


def local_data(script: Path, args: Sequence[str], programs: Sequence[ast.Module]) -> Sequence[str]:
    """Returns the relative names that exist here, those among the arguments first.

    `programs` are the script and its own modules. Names are looked up where the script starts here, in the current
    folder, and in the script's own.
    """
    words = [word.rpartition("=")[2] if word.startswith("-") else word for word in args]
    made = {name for program in programs for name in _made_names(program)}
    read = [name for program in programs for name in _read_names(program) if name not in made]
    found: dict[str, None] = {}
    for name in (*words, *read):
        if _is_candidate(name) and _exists(name, script) and not _is_below(name, found):
            found[name.rstrip("/").removeprefix("./")] = None
    return [*found]


def _is_candidate(name: str) -> bool:
    """Whether it is a relative path that is no number, and no Python file, since modules travel."""
    return (
        0 < len(name) <= _LONGEST
        and name.isprintable()
        and not name.startswith(("/", "~", "-"))
        and not name.endswith(".py")
        and name.strip("./") != ""
        and _NUMBER.fullmatch(name) is None
    )


def _exists(name: str, script: Path) -> bool:
    try:
        return any((folder / name).exists() for folder in (Path(), script.parent))
    except OSError:
        return False


def _is_below(name: str, found: dict[str, None]) -> bool:
    return any(name.removeprefix("./").startswith(f"{each}/") for each in found)


def _read_names(program: ast.Module) -> Iterator[str]:
    """Yields the literals that the program passes to functions that read, directly or by a variable's name."""
    variables = {
        target.id: node.value
        for node in ast.walk(program)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(program):
        match node:
            case ast.Call(func=func, args=[first, *rest]) if _name(func) in _READERS and not _writes(rest, node):
                for each in (first, *(rest if _name(func) == "join" else ())):
                    yield from _text(variables.get(each.id, each) if isinstance(each, ast.Name) else each)
            case ast.Call(func=ast.Attribute(attr="add_argument"), keywords=keywords):
                for keyword in keywords:
                    yield from _text(keyword.value) if keyword.arg == "default" else ()
            case ast.BinOp(op=ast.Div(), right=ast.Constant() as right):
                yield from _text(right)
            case _:
                pass


def _made_names(program: ast.Module) -> Iterator[str]:
    for node in ast.walk(program):
        match node:
            case ast.Call(func=ast.Attribute(attr="mkdir", value=ast.Call(args=[first, *_]))):
                yield from _text(first)
            case ast.Call(func=func, args=[first, *_]) if _name(func) in _MAKERS:
                yield from _text(first)
            case _:
                pass


def _writes(rest: Sequence[ast.expr], call: ast.Call) -> bool:
    """Whether it opens a file to write it, by its mode."""
    modes = [*rest[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    return (
        any(
            isinstance(mode, ast.Constant) and isinstance(mode.value, str) and mode.value[:1] in {"w", "a", "x"}
            for mode in modes
        )
        and _name(call.func) == "open"
    )


def _text(node: ast.expr) -> Iterator[str]:
    """Yields a literal; of an f-string the folder with which it begins."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if "/" in text:
            yield text.rpartition("/")[0]
        case _:
            pass


def _name(function: ast.expr) -> str:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""
