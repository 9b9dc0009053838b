"""The Python programs of a command, as far as they are in it or in files of this machine, and what they import."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

_SCRIPT = re.compile(r"""[^\s;|&()<>'"`$]+\.py(?=$|[\s;|&()<>'"`])""")
_MODULE = re.compile(r"\bpython[\d.]*\s(?:[^;|&]*\s)?-m\s+(?P<name>[\w.]+)")
_CHANGE_OF_FOLDER = re.compile(r"(?:^|[\s;|&(])(?:cd|pushd)\s")
_LARGEST_SCRIPT = 2**20
_MOST_FILES = 100
"""Of one command, or of one script, that are parsed."""


def imported_modules(command: Sequence[str], folder: Path) -> frozenset[str]:
    """Returns the modules without which the command's scripts can't start; `folder` is where the command starts.

    They are imported by statements at the top of a script: others may never run, or expect that the module is missing.
    A script that can't be found or read imports nothing.
    """
    scripts = _script_files(command, folder)
    return frozenset(module for script in scripts for module in _imports(script) if not _is_beside(script, module))


def modules_of_programs(command: Sequence[str], folder: Path) -> frozenset[str]:
    """Returns the modules that the command's scripts import anywhere, without the user's own."""
    return frozenset(module for script in _script_files(command, folder) for module in code_of_script(script).modules)


def parsed_programs(command: Sequence[str], folder: Path) -> Sequence[ast.Module]:
    """Returns the command's programs, those after `-c` included, and the user's own modules that they import.

    What can't be found, or is not Python, is left out.
    """
    inline = [_parsed(text.encode(errors="replace")) for option, text in pairwise(command) if option == "-c"]
    codes = [code_of_script(script) for script in _script_files(command, folder)]
    files = [file for code in codes for file in code.files]
    parsed = [_parsed_file(file) for file in [*dict.fromkeys(files)][:_MOST_FILES]]
    return [tree for tree in (*inline, *parsed) if tree is not None]


def _script_files(command: Sequence[str], folder: Path) -> Sequence[Path]:
    """Returns the files that may be the command's scripts, and the modules that python runs with `-m`."""
    if any(map(_CHANGE_OF_FOLDER.search, command)):
        return ()
    modules = [match["name"].replace(".", "/") for match in _MODULE.finditer(" ".join(command))]
    names = [*(script for word in command for script in _scripts(word)), *(f"{module}.py" for module in modules)]
    names += [f"{module}/__main__.py" for module in modules]
    return [folder / name for name in dict.fromkeys(names)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCode:
    """A script and the user's own code that it imports from the script's folder, which Python searches first."""

    files: Sequence[Path]
    """The script, the modules beside it that it needs, and all modules of the packages there that it needs."""
    modules: frozenset[str]
    """The other modules that all of these files import, anywhere in them."""


def code_of_script(script: Path) -> ScriptCode:
    """Follows the imports of a script through the files beside it. A file that can't be parsed imports nothing."""
    found, modules, waiting = {script: None}, set(), [script]
    for file in islice(waiting, _MOST_FILES):  # which grows
        for module in {*_all_imports(file)}:
            own = [each for each in _own_files(script.parent, module) if each not in found]
            found |= dict.fromkeys(own)
            waiting += own
            if not _is_beside(script, module):
                modules.add(module)
    return ScriptCode(files=[*found], modules=frozenset(modules))


def _own_files(folder: Path, module: str) -> Sequence[Path]:
    """Returns the files of a module in that folder; none if it has none there."""
    package = folder / module
    if (package / "__init__.py").is_file():
        return _files_among(package.rglob("*.py"))
    if (folder / f"{module}.py").is_file():
        return [folder / f"{module}.py"]
    # A folder may be a package without __init__.py. It may also be one of data, with very many files below.
    is_own = module not in sys.stdlib_module_names
    return _files_among([*package.glob("*.py"), *package.glob("*/*.py")]) if is_own else []


def _files_among(paths: Iterable[Path]) -> Sequence[Path]:
    """Leaves out folders of such a name, and links to nothing, as editors make them for locks."""
    return sorted(path for path in paths if path.is_file())


def _all_imports(script: Path) -> Iterator[str]:
    for node in (node for statement in _statements(script) for node in ast.walk(statement)):
        yield from _modules_of(node)


def _scripts(word: str) -> Sequence[str]:
    found: list[str] = _SCRIPT.findall(word)
    return [word, *found] if word.endswith(".py") else found


def _imports(script: Path) -> Iterator[str]:
    for statement in _statements(script):
        yield from _modules_of(statement)


def _modules_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (name.name.partition(".")[0] for name in names)
        case ast.ImportFrom(module=str(module), level=0):
            yield module.partition(".")[0]
        case _:
            pass


def _statements(script: Path) -> Sequence[ast.stmt]:
    tree = _parsed_file(script)
    return () if tree is None else tree.body


def _parsed_file(script: Path) -> ast.Module | None:
    try:
        if not script.is_file() or script.stat().st_size > _LARGEST_SCRIPT:
            return None
        return _parsed(script.read_bytes())
    except (OSError, ValueError):
        return None


def _parsed(source: bytes) -> ast.Module | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # of the user's string literals
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_beside(script: Path, module: str) -> bool:
    """Whether the module is the user's own."""
    return any((script.parent / place).is_file() for place in (f"{module}.py", f"{module}/__init__.py"))
