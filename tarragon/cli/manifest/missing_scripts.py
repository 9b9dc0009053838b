"""Finds scripts that a job's commands start with on this machine, and that do not exist here.

A false alarm would keep a job from running. So a script counts only if nothing can create or mount it first: it is what
the command starts at once, in a pod without init containers, at a place where no volume is mounted and to which
images.yaml maps nothing.
"""

from __future__ import annotations

import errno
import posixpath
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from tarragon.base.errors import Problem
from tarragon.cli.jobview.pod_templates import pod_templates
from tarragon.kube.field_reader import suggestion
from tarragon.kube.meta import Json, JsonObject
from tarragon.localcluster.kubelet.images.images import Environment, ImageMap

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
_PYTHON_FLAGS = re.compile(r"-(?:[bBdEiIOPqsSuvx]+|[XW].+)")
_PYTHON_OPTIONS = frozenset({"-X", "-W"})
"""Those whose value is the next word."""
_SHELLS = frozenset({"sh", "bash", "ash", "dash", "zsh"})
_MPI = frozenset({"mpirun", "mpiexec", "orterun", "prterun", "horovodrun"})
_MPI_FOLDER_OPTIONS = frozenset({"wdir", "wd", "set-cwd-to-session-dir"})
_MPI_PAIR_OPTIONS = frozenset({"mca", "gmca", "env", "genv"})
"""Options with two values. Others have one or none, which is not always known."""
_PREFIXES = frozenset({"exec", "nohup", "time"})
_HARMLESS = frozenset({"set", "export", "echo", "date", "hostname", "pwd", "nproc", "ulimit", ":"})
"""Commands of a shell line that create no script, wait for none, and change no folder."""
_SUBSTITUTIONS = ("$(", "`")
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
_SEPARATORS = frozenset({";", "&&", "\n"})
_PUNCTUATION = "();<>|&\n"


def missing_scripts(job: JsonObject, images: ImageMap, folder: Path, provided: Collection[str]) -> Iterator[Problem]:
    """Yields a problem for each script that does not exist. `folder` is where containers start that set none.

    `provided` are the paths of containers whose command the operator replaces.
    """
    for path, template in pod_templates(job):
        spec: JsonObject = template["spec"]
        if spec.get("initContainers"):
            continue
        for number, container in enumerate(spec["containers"]):
            place = f"{path}.containers[{number}]"
            if isinstance(container, Mapping) and place not in provided:
                environment = images.environment_of(str(container.get("image") or ""))
                problem = _missing_script(place, container, environment, folder)
                yield from [] if problem is None else [problem]


def started_script(words: Sequence[str]) -> str | None:
    """Returns the script that a command starts at once; None if it starts none, or if that is not certain."""
    program = posixpath.basename(words[0]) if words else ""
    if program in _PREFIXES:
        return started_script(words[1:])
    if program in _SHELLS:
        return _script_of_shell(words[1:])
    if program in _MPI:
        return _script_of_mpi(words[1:])
    if _PYTHON.fullmatch(program):
        return _script_of_python(words[1:])
    return _plain(words[0]) if words and words[0].startswith(("./", "../")) else None


def _script_of_mpi(words: Sequence[str]) -> str | None:
    """Returns the script if Python is what mpirun starts, and not another program that starts Python."""
    values = 0
    for number, word in enumerate(words):
        option = word.lstrip("-").partition("=")[0]
        if word.startswith("-") and option in _MPI_FOLDER_OPTIONS:
            return None
        if word.startswith("-"):
            values = 2 if option in _MPI_PAIR_OPTIONS else 1
        elif _PYTHON.fullmatch(posixpath.basename(word)) and "=" not in word:
            return _script_of_python(words[number + 1 :])
        elif not values or word in _SHELLS or word.endswith(".sh"):
            return None
        else:
            values -= 1
    return None


def _script_of_python(words: Sequence[str]) -> str | None:
    rest = iter(words)
    for word in rest:
        if word in _PYTHON_OPTIONS:
            next(rest, None)
        elif not word.startswith("-"):
            return _plain(word)
        elif not _PYTHON_FLAGS.fullmatch(word):  # a module or a command; or it is no option of Python's
            return None
    return None


def _script_of_shell(words: Sequence[str]) -> str | None:
    """Returns the script of `sh train.sh`, or the one that the first command of `sh -c LINE` starts."""
    if not words:
        return None
    if not words[0].startswith(("-", "+")):
        return _plain(words[0])
    is_line = re.fullmatch(r"-[a-z]*c", words[0]) is not None and len(words) > 1
    command = _first_command(words[1]) if is_line else []
    return started_script(command) if command else None


def _first_command(line: str) -> Sequence[str]:
    """Returns the words of the first command that may depend on what was before it; empty if it is not a plain one."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_PUNCTUATION)
    lexer.whitespace = " \t\r"
    lexer.commenters = ""
    command: list[str] = []
    try:
        for word in lexer:
            if any(each in word for each in _SUBSTITUTIONS):  # may create a script before the command starts
                return []
            if word.strip("\n") == "" or word in _SEPARATORS:
                if command and command[0] not in _HARMLESS:
                    return command
                command = []
            elif set(word) <= set(_PUNCTUATION):
                return command if word == "|" and command and command[0] not in _HARMLESS else []
            elif command or not re.match(r"\w+=", word):
                command.append(word)
    except ValueError:  # quotes that are not closed
        return []
    return command


def _plain(word: str) -> str | None:
    """The word, unless a shell or the kubelet would expand it."""
    return None if not word or any(letter in word for letter in "$`*?[{~") else word


def _missing_script(place: str, container: JsonObject, environment: Environment, folder: Path) -> Problem | None:
    command = _strings(container.get("command"))
    script = started_script([*(command or environment.entrypoint), *_strings(container.get("args"))])
    workdir = str(container.get("workingDir") or environment.workdir)
    if script is None or _plain(workdir or ".") is None:
        return None
    path = posixpath.normpath(posixpath.join(str(folder), workdir, script))
    if _is_mounted(path, container, environment) or _may_exist(path):
        return None
    parent = Path(path).parent
    where = "on this machine" if script.startswith("/") else f"in {posixpath.join(str(folder), workdir)}"
    return Problem(
        f"{place}.{'command' if command else 'args'}",
        f"starts {script}, which does not exist {where.rstrip('/')}",
        suggestion(Path(path).name, _file_names(parent)) or _remedy(script),
    )


def _may_exist(path: str) -> bool:
    """Whether the file exists, or this user can't find out."""
    try:
        Path(path).stat()
    except OSError as error:
        return error.errno not in _ABSENT
    except ValueError:  # a NUL
        return False
    return True


def _remedy(script: str) -> str:
    if script.startswith("/"):
        return "write its path on this machine, or map that of the image (`tarragon docs howto/environments`)"
    return "call tarragon in the folder of the script, or set workingDir"


def _is_mounted(path: str, container: JsonObject, environment: Environment) -> bool:
    mounts: Json = container.get("volumeMounts")
    points = [each.get("mountPath") for each in mounts if isinstance(each, Mapping)] if isinstance(mounts, list) else []
    return any(
        path == point or path.startswith(f"{str(point).rstrip('/')}/")
        for point in (*points, *environment.local_paths())
    )


def _file_names(folder: Path) -> Sequence[str]:
    try:
        return [each.name for each in folder.iterdir() if each.is_file()]
    except (OSError, ValueError):
        return []


def _strings(value: Json) -> Sequence[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
