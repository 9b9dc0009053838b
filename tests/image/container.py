"""Runs programs of an image as a container runtime would: in its file system, with its user and its variables.

There is no engine on the machines that run the tests. What matters here are mounts, the root folder and the user, and
for these the kernel is asked directly.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.image.build import Result

PATIENCE = 120
Json = dict[str, Any]


@dataclass
class Container:
    root: Path
    config: Json
    """That of the image: entry point, user, variables."""
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    @classmethod
    def of(cls, built: Result, architecture: str, root: Path) -> Container:
        blobs = built.layout / "blobs" / "sha256"
        manifest = read_blob(blobs, built.images[architecture].manifest["digest"])
        return cls(root, read_blob(blobs, manifest["config"]["digest"])["config"])

    def run(self, command: Sequence[str], mounts: Mapping[str, Path] | None = None) -> str:
        """What a command prints that ends well."""
        process = self.start(command, mounts or {}, {})
        printed, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        return printed

    def operator(
        self, arguments: Sequence[str], mounts: Mapping[str, Path], environment: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        return self.start([*self.config["Entrypoint"], *arguments], mounts, environment)

    def start(
        self, command: Sequence[str], mounts: Mapping[str, Path], environment: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        """Start a command, with these folders mounted at paths of the image."""
        variables = dict(each.split("=", 1) for each in self.config["Env"])
        process = subprocess.Popen(
            [program("unshare"), "--mount", "/bin/sh", "-ec", self._script(command, mounts)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**variables, **environment},
        )
        self.running.append(process)
        return process

    def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=PATIENCE)

    def _script(self, command: Sequence[str], mounts: Mapping[str, Path]) -> str:
        root, mount = shlex.quote(str(self.root)), program("mount")
        lines = [f"{mount} --bind {root} {root}"]
        for path, folder in mounts.items():
            target = self.root / path.lstrip("/")
            target.mkdir(parents=True, exist_ok=True)
            lines.append(f"{mount} --bind {shlex.quote(str(folder))} {shlex.quote(str(target))}")
        lines += [
            f"{mount} -o remount,bind,ro {root}",
            f"{mount} -t tmpfs -o size=16m,mode=1777 tmpfs {root}/tmp",  # noqa: S108  # that of the image
            f"{mount} -t proc proc {root}/proc",
            f"{mount} --bind /dev {root}/dev",
        ]
        user = self.config["User"]
        groups = user.partition(":")[2]
        chroot = [program("chroot"), f"--userspec={user}", f"--groups={groups}", str(self.root), *command]
        return "\n".join([*lines, "exec " + shlex.join(chroot)])


def program(name: str) -> str:
    """The path of a program of this machine: the variables are those of the image."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
    assert found, name
    return found


def read_blob(blobs: Path, digest: str) -> Json:
    content: Json = json.loads((blobs / digest.removeprefix("sha256:")).read_bytes())
    return content
