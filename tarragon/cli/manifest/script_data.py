"""Finds data of this machine that a script uses and that does not travel to a cluster with it.

As in `local_paths`, false warnings teach users to ignore warnings. So a name counts only if it exists here, and if it
is an argument of the script, or is passed to a function that reads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_READERS = frozenset(
    {
        *("open", "Path", "glob", "iglob", "listdir", "scandir", "walk", "join", "load", "loadtxt", "genfromtxt"),
        *("read_csv", "read_table", "read_json", "read_parquet", "read_pickle", "read_excel", "load_model"),
        *("image_dataset_from_directory", "text_dataset_from_directory", "load_from_disk"),
        *("TFRecordDataset", "TextLineDataset", "ImageFolder", "flow_from_directory"),
    }
)
_MAKERS = re.compile(r"mkdir|makedirs|touch|rename|replace|write_(?:text|bytes)|save\w*|to_(?:csv|json|parquet|pickle)")
"""What the script makes itself need not travel; it is here since an earlier run."""
_WRITING = re.compile(r"[wax]b?t?\+?b?")
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
    variables = _variables(program)
    for node in ast.walk(program):
        match node:
            case ast.Call(func=func, args=[first, *rest]) if _name(func) in _READERS and not _opens_to_write(node):
                for each in (first, *(rest if _name(func) == "join" else ())):
                    yield from _text(each, variables)
            case ast.Call(func=ast.Attribute(attr="add_argument"), keywords=keywords):
                for keyword in keywords:
                    yield from _text(keyword.value, {}) if keyword.arg == "default" else ()
            case ast.BinOp(op=ast.Div(), right=ast.Constant() as right):
                yield from _text(right, {})
            case _:
                pass


def _made_names(program: ast.Module) -> Iterator[str]:
    """Yields the literals that the program passes to functions that write, or to a Path that does."""
    variables = _variables(program)
    for node in ast.walk(program):
        match node:
            case ast.Call(func=func, args=args) if _MAKERS.fullmatch(_name(func)) or _opens_to_write(node):
                path = [func.value] if isinstance(func, ast.Attribute) else []
                for each in (*path, *args[:2]):
                    yield from _text(each, variables)
            case _:
                pass


def _variables(program: ast.Module) -> Mapping[str, ast.expr]:
    return {
        target.id: node.value
        for node in ast.walk(program)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _opens_to_write(call: ast.Call) -> bool:
    """Whether it opens a file to write it, by its mode."""
    if _name(call.func) != "open":
        return False
    modes = [*call.args[:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    return any(isinstance(mode, ast.Constant) and _WRITING.fullmatch(str(mode.value)) for mode in modes)


def _text(node: ast.expr, variables: Mapping[str, ast.expr]) -> Iterator[str]:
    """Yields a literal, or that of a variable or Path; of an f-string the folder with which it begins."""
    value = variables.get(node.id, node) if isinstance(node, ast.Name) else node
    match value:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Call(func=func, args=[ast.Constant(value=str(text))]) if _name(func) == "Path":
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
