"""Files that a job's commands name and that exist only on this machine. Pure but for `this_machine`.

A warning that is wrong teaches people not to read warnings. So a path counts only when it leads to something here, when
nothing is mounted there, and when the image can't have it: a relative path in a well-known public image, or an
absolute one below this user's home or folder.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tarragon.base.errors import Problem
from tarragon.cli.jobview.pod_templates import templates
from tarragon.kube.meta import Json, JsonObject

_PUBLIC = re.compile(
    r"(?:(?:docker\.io|index\.docker\.io|registry-1\.docker\.io)/)?"
    r"(?:(?:library/)?(?:python|ubuntu|debian|alpine|fedora|busybox|bash|pypy)|tensorflow/tensorflow|nvidia/cuda|"
    r"pytorch/pytorch|continuumio/\w+|jupyter/[\w-]+|horovod/horovod)(?:[:@].*)?"
    r"|(?:nvcr\.io/nvidia/(?:tensorflow|cuda)|gcr\.io/deeplearning-platform-release/[\w.-]+)(?:[:@].*)?"
)
"""Images that everybody has and that hold nobody's own files."""

_SOURCES = (".py", ".sh", ".ipynb", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".csv", ".txt", ".whl")
"""How a relative word that is no path at all to look at still names a file."""

_SHELLS = frozenset({"sh", "bash", "ash", "dash", "zsh"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where the user is on it, whose files these are, and what there is."""

    folder: str
    home: str
    exists: Callable[[str], bool]


def this_machine() -> Machine:
    return Machine(folder=str(Path.cwd()), home=str(Path.home()), exists=lambda path: Path(path).exists())


def only_here(job: JsonObject, machine: Machine) -> Iterator[Problem]:
    """One for each file, where it is named first."""
    told: set[str] = set()
    for path, template in templates(job):
        containers: Json = template["spec"].get("containers")
        for number, container in enumerate(containers if isinstance(containers, list) else ()):
            for word in _words(container) if isinstance(container, Mapping) else ():
                found = _found(word, container, machine)
                if found is not None and found not in told:
                    told.add(found)
                    yield Problem(
                        f"{path}.spec.containers[{number}]",
                        f"names {word}, which is on this machine ({found}), and nothing brings it to the cluster",
                        "put it into the image, or mount it: a ConfigMap in FILE, a volume",
                    )


def _found(word: str, container: JsonObject, machine: Machine) -> str | None:
    """The path here of what will not be there, or None."""
    is_public = _PUBLIC.fullmatch(str(container.get("image") or "")) is not None
    if word.startswith(("/", "~/")):
        here = there = posixpath.normpath(word.replace("~", machine.home, 1) if word.startswith("~/") else word)
        # An image of somebody's own may well work in /root or /workspace, as this machine does.
        mine = [machine.home, machine.folder] if is_public else [machine.home]
        is_lost = any(_is_below(here, root) for root in mine if root != "/" and (is_public or root != "/root"))
    else:
        there = posixpath.normpath(posixpath.join(str(container.get("workingDir") or ""), word))
        here = posixpath.normpath(posixpath.join(machine.folder, word))
        is_lost = is_public and _names_a_file(word)
    if not is_lost or _is_mounted(there, container) or not machine.exists(here):
        return None
    return here


def _names_a_file(word: str) -> bool:
    return word.startswith(("./", "../")) or word.endswith(_SOURCES)


def _is_mounted(path: str, container: JsonObject) -> bool:
    mounts: Json = container.get("volumeMounts")
    points = [each.get("mountPath") for each in mounts if isinstance(each, Mapping)] if isinstance(mounts, list) else []
    return any(isinstance(point, str) and _is_below(path, point.rstrip("/")) for point in points)


def _is_below(path: str, point: str) -> bool:
    return path == point or path.startswith(f"{point}/")


def _words(container: JsonObject) -> Iterator[str]:
    """What could be a path: each word of the command, of a shell's line, and what stands behind a =."""
    command = [*_strings(container.get("command")), *_strings(container.get("args"))]
    is_shell = bool(command) and posixpath.basename(command[0]) in _SHELLS
    for word in command:
        for part in _split(word) if is_shell and " " in word else [word]:
            yield part.rpartition("=")[2] if part.startswith("-") or "=" in part else part


def _split(line: str) -> Sequence[str]:
    """A line that changes the folder says nothing of its relative paths that we would understand."""
    try:
        words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
    except ValueError:
        return ()
    return [word for word in words if word.startswith("/")] if "cd" in words else words


def _strings(value: Json) -> Sequence[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
