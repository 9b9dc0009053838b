"""kubectl for launchers of MPIJobs before v2beta1, built from source: static, and for any architecture."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.image.errors import DownloadError, ImageError
from tools.image.staging import ROOT

SCRIPT = ROOT / "tools" / "install_kubectl.sh"


@dataclass(frozen=True, slots=True)
class GoModule:
    name: str
    version: str


def build_kubectl(architecture: str, work: Path) -> Path:
    """Build it, and return the program."""
    if shutil.which("go") is None:
        raise ImageError(
            "kubectl is built from source, and there is no go on PATH (1.26 or newer). Install it, or build an image "
            "without kubectl, by --without-kubectl: launchers of MPIJobs before v2beta1 then need another one, which "
            "the operator's option --kubectl-delivery-image names"
        )
    program = work / f"kubectl-{architecture}"
    command = [str(SCRIPT), architecture, str(program)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "GOOS": "linux"})
    if ended.returncode != 0:
        is_network = re.search(r"dial tcp|proxyconnect|no such host|TLS handshake", ended.stderr)
        raise (DownloadError if is_network else ImageError)(f"kubectl was not built:\n{ended.stderr.strip()}")
    return program


def kubectl_version() -> str:
    """Return the version that the script builds."""
    found = re.search(r"^VERSION=(\S+)$", SCRIPT.read_text(), re.MULTILINE)
    if found is None:
        raise ImageError(f"{SCRIPT.name} has no line VERSION=…")
    return found[1]


def modules_of(program: Path) -> Iterator[GoModule]:
    """Yield what a program of Go was built from, as it says itself: the compiler's library first."""
    ended = subprocess.run(["go", "version", "-m", str(program)], capture_output=True, text=True, check=True)
    yield GoModule("stdlib", ended.stdout.split()[1].removeprefix("go"))
    for name, version in re.findall(r"^\t(?:dep|=>)\t(\S+)\t(\S+)", ended.stdout, re.MULTILINE):
        yield GoModule(name, version)
