"""Finds files that a job's commands use and that exist only on this machine. Pure except for `this_machine`.

False warnings teach users to ignore warnings. So a path counts only if it exists here, nothing is mounted there, and
the image can't contain it: a relative path in a well-known public image, or an absolute path below the user's home or
current folder.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tarragon.base.errors import Problem
from tarragon.cli.jobview.pod_templates import pod_templates
from tarragon.kube.meta import Json, JsonObject

_PUBLIC = re.compile(
    r"(?:(?:docker\.io|index\.docker\.io|registry-1\.docker\.io)/)?"
    r"(?:(?:library/)?(?:python|ubuntu|debian|alpine|fedora|busybox|bash|pypy)|tensorflow/tensorflow|nvidia/cuda|"
    r"pytorch/pytorch|continuumio/\w+|jupyter/[\w-]+|horovod/horovod)(?:[:@].*)?"
    r"|(?:(?:nvcr|ghcr)\.io/nvidia/(?:tensorflow|cuda|jax)|gcr\.io/deeplearning-platform-release/[\w.-]+)(?:[:@].*)?"
)
"""Well-known public images, which contain no user's files."""

_SOURCES = (".py", ".sh", ".ipynb", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".csv", ".txt", ".whl")
"""Suffixes by which a word without a slash is taken for a file."""

_SHELLS = frozenset({"sh", "bash", "ash", "dash", "zsh"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMachine:
    """The user's current folder and home, and a test of whether a path exists."""

    folder: str
    home: str
    exists: Callable[[str], bool]


def this_machine() -> LocalMachine:
    return LocalMachine(folder=str(Path.cwd()), home=str(Path.home()), exists=lambda path: Path(path).exists())


def local_only_files(job: JsonObject, machine: LocalMachine) -> Iterator[Problem]:
    """Yields a problem for each file that exists only here, where it is named first."""
    reported: set[str] = set()
    for path, template in pod_templates(job):
        containers: Json = template["spec"].get("containers")
        for number, container in enumerate(containers if isinstance(containers, list) else ()):
            for word in _words(container) if isinstance(container, Mapping) else ():
                missing = _missing_file(word, container, machine)
                if missing is not None and missing not in reported:
                    reported.add(missing)
                    yield Problem(
                        f"{path}.containers[{number}]",
                        f"uses {word}, which exists on this machine ({missing}) but not in the cluster",
                        "add it to the image, or mount it from a volume or a ConfigMap",
                    )


def has_image_only(job: JsonObject, volume: str) -> bool:
    """Whether all containers start from a well-known public image alone, in its own folder: mounts are `volume`."""
    for _, template in pod_templates(job):
        containers: Json = template["spec"].get("containers")
        for container in containers if isinstance(containers, list) else ():
            mounts: Json = container.get("volumeMounts") or []
            if _PUBLIC.fullmatch(str(container.get("image") or "")) is None or container.get("workingDir"):
                return False
            if any(mount.get("name") != volume for mount in mounts):
                return False
    return True


def _missing_file(word: str, container: JsonObject, machine: LocalMachine) -> str | None:
    """Returns the local path of a file that the container will not have, or None."""
    is_public = _PUBLIC.fullmatch(str(container.get("image") or "")) is not None
    if word.startswith(("/", "~/")):
        local_path = container_path = posixpath.normpath(
            word.replace("~", machine.home, 1) if word.startswith("~/") else word
        )
        # A user's own image may use the same folders as this machine, such as /root or /workspace.
        user_roots = [machine.home, machine.folder] if is_public else [machine.home]
        is_missing = any(
            _is_below(local_path, root) for root in user_roots if root != "/" and (is_public or root != "/root")
        )
    else:
        container_path = posixpath.normpath(posixpath.join(str(container.get("workingDir") or ""), word))
        local_path = posixpath.normpath(posixpath.join(machine.folder, word))
        is_missing = is_public and names_a_file(word)
    if not is_missing or _is_mounted(container_path, container) or not machine.exists(local_path):
        return None
    return local_path


def names_a_file(word: str) -> bool:
    """Whether a word of a command is taken for a file by its look alone."""
    return word.startswith(("./", "../")) or word.endswith(_SOURCES)


def _is_mounted(path: str, container: JsonObject) -> bool:
    mounts: Json = container.get("volumeMounts")
    points = [each.get("mountPath") for each in mounts if isinstance(each, Mapping)] if isinstance(mounts, list) else []
    return any(isinstance(point, str) and _is_below(path, point.rstrip("/")) for point in points)


def _is_below(path: str, point: str) -> bool:
    return path == point or path.startswith(f"{point}/")


def _words(container: JsonObject) -> Iterator[str]:
    """Yields the words that may be paths: of the command, of a shell line, and values after =."""
    command = [*_strings(container.get("command")), *_strings(container.get("args"))]
    is_shell = bool(command) and posixpath.basename(command[0]) in _SHELLS
    for word in command:
        for part in _split(word) if is_shell and " " in word else [word]:
            yield part.rpartition("=")[2] if part.startswith("-") or "=" in part else part


def _split(line: str) -> Sequence[str]:
    """Splits a shell line. A line with `cd` yields absolute paths only: its relative ones depend on the folder."""
    try:
        words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
    except ValueError:
        return ()
    return [word for word in words if word.startswith("/")] if "cd" in words else words


def _strings(value: Json) -> Sequence[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
