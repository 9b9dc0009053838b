"""The Python packages of the image: those of uv.lock, checked against its hashes, for the image's Python."""

from __future__ import annotations

import email
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.image.errors import DownloadError, ImageError
from tools.image.staging import PYTHON, ROOT

UV = ROOT / ".tools" / "bin" / "uv"
PLATFORMS: Mapping[str, str] = {"amd64": "x86_64-manylinux_2_40", "arm64": "aarch64-manylinux_2_40"}
"""By architecture, what uv calls it; the image's C library is newer than 2.40."""
_EXPORT = (
    *("export", "--locked", "--no-default-groups", "--extra", "operator"),
    *("--no-emit-project", "--no-header", "--no-annotate"),
)
_INSTALL = ("pip", "install", "--require-hashes", "--no-deps", "--only-binary", ":all:", "--link-mode", "copy")


@dataclass(frozen=True, slots=True)
class PythonPackage:
    name: str
    version: str
    licence: str
    """As an SPDX expression; empty where its author states none."""


def install_dependencies(architecture: str, work: Path) -> Path:
    """Install them into a folder of `work`, and return that."""
    requirements, target = work / "requirements.txt", work / f"python-{architecture}"
    requirements.write_text(_uv(*_EXPORT, "--python", sys.executable))
    options = ("--python-version", PYTHON.removeprefix("python"), "--python-platform", PLATFORMS[architecture])
    _uv(*_INSTALL, *options, "--python", sys.executable, "--target", str(target), "-r", str(requirements))
    return target


def installed_packages(folder: Path) -> Iterator[PythonPackage]:
    for path in sorted(folder.glob("*.dist-info/METADATA")):
        headers = email.message_from_string(path.read_text(encoding="utf-8"))
        yield PythonPackage(headers["Name"], headers["Version"], headers.get("License-Expression", ""))


def _uv(*words: str) -> str:
    if not UV.exists():
        raise ImageError(f"there is no {UV.relative_to(ROOT)}: run tools/bootstrap.sh, as `make image` does")
    ended = _run((str(UV), "--quiet", *words))
    if ended.returncode == 0:
        return ended.stdout
    message = f"uv {words[0]} failed:\n{ended.stderr.strip()}"
    raise (DownloadError if "Failed to fetch" in ended.stderr else ImageError)(message)


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    # A virtualenv that the caller has activated is none of ours.
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
