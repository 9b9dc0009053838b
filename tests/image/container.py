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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.image.build import Result

PATIENCE = 120
TEMPORARY = "/tmp"  # noqa: S108  # that of the image
Json = dict[str, Any]
IMPORT_ALL = """\
import importlib, pathlib, ssl, sysconfig, zoneinfo
folder = pathlib.Path(sysconfig.get_path("stdlib"), "lib-dynload")
names = sorted({path.name.partition(".")[0] for path in folder.iterdir()})
assert names
for name in [*names, "numpy", "aiohttp", "cryptography.x509", "rich.traceback", "yaml", "msgspec"]:
    importlib.import_module(name)
assert ssl.create_default_context().get_ca_certs()
zoneinfo.ZoneInfo("Europe/Zurich")
"""
"""Debian's packages are in the image without some of their dependencies: this needs all of those that matter."""


@dataclass
class Container:
    root: Path
    config: Json
    """That of the image: entry point, user, variables."""

    @classmethod
    def of(cls, built: Result, architecture: str, root: Path) -> Container:
        blobs = built.layout / "blobs" / "sha256"
        manifest = read_blob(blobs, built.images[architecture].manifest["digest"])
        return cls(root, read_blob(blobs, manifest["config"]["digest"])["config"])

    def run(self, command: Sequence[str], mounts: Mapping[str, Path] | None = None) -> str:
        """What a command prints that ends well, with these folders mounted at paths of the image."""
        folders = {path: shlex.quote(str(folder)) for path, folder in (mounts or {}).items()}
        ended = subprocess.run(
            [program("unshare"), "--mount", "/bin/sh", "-ec", self.script(shlex.join(command), folders)],
            capture_output=True,
            text=True,
            env=dict(each.split("=", 1) for each in self.config["Env"]),
            check=False,
            timeout=PATIENCE,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def users(self) -> list[int]:
        """The ids of the users that run programs in this file system now, one for each process."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # ended meanwhile
                if (process / "root").readlink() == self.root:
                    found.append(process.stat().st_uid)
        return found

    def script(self, command: str, mounts: Mapping[str, str]) -> str:
        """Lines for a shell in a mount namespace of its own. The command and the mounted folders are text of the shell,
        quoted already, so that its variables may be in them.
        """
        root, mount = shlex.quote(str(self.root)), program("mount")
        lines = [f"{mount} --bind {root} {root}"]
        for path, folder in mounts.items():
            target = self.root / path.lstrip("/")
            target.mkdir(parents=True, exist_ok=True)
            lines.append(f"{mount} --bind {folder} {shlex.quote(str(target))}")
        lines.append(f"{mount} -o remount,bind,ro {root}")
        if TEMPORARY not in mounts:
            lines.append(f"{mount} -t tmpfs -o size=16m,mode=1777 tmpfs {root}{TEMPORARY}")
        lines += [
            f"{mount} -t proc proc {root}/proc",
            f"{mount} --bind /dev {root}/dev",
        ]
        user = self.config["User"]
        groups = user.partition(":")[2]
        return "\n".join([*lines, f"exec {program('chroot')} --userspec={user} --groups={groups} {root} {command}"])


def program(name: str) -> str:
    """The path of a program of this machine: the variables are those of the image."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
    assert found, name
    return found


def read_blob(blobs: Path, digest: str) -> Json:
    content: Json = json.loads((blobs / digest.removeprefix("sha256:")).read_bytes())
    return content
