"""The package as users get it: built, and installed into a virtualenv that has nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.virtualenvs import virtualenv

OWN_VARIABLES = ("PYTHON", "TARRAGON_", "VIRTUAL_ENV", "UV_")


@dataclass(frozen=True, slots=True)
class Installation:
    """A virtualenv with Tarragon, used from a folder outside of the project."""

    environment: Path
    folder: Path

    def variables(self) -> dict[str, str]:
        """Those of the tests would lead to the checkout."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OWN_VARIABLES)}
        return {**kept, "TARRAGON_HOME": str(self.folder / "home"), "HOME": str(self.folder)}

    def __call__(
        self, *words: str, program: str = "tarragon", extra: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.environment / "bin" / program, *words],
            cwd=self.folder,
            env={**self.variables(), **(extra or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )


def uv() -> str:
    """The program uv: that of the Makefile, or one on PATH."""
    found = shutil.which("uv", path=f"{ROOT / '.tools/bin'}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip("uv is not here: `make` installs it")
    return found


def build(what: str, source: Path, folder: Path) -> Path:
    """The wheel or the sdist of a source tree or an sdist; `what` is uv's option."""
    command = [uv(), "build", "-q", "--no-config", what, "-o", str(folder), str(source)]
    built = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=False, timeout=300)
    if "Failed to fetch" in built.stderr or "error sending request" in built.stderr:
        pytest.skip(f"no package index has hatchling: {built.stderr}")
    assert built.returncode == 0, built.stderr
    return next(each for each in folder.iterdir() if each.suffix in {".whl", ".gz"})


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("--wheel", ROOT, tmp_path_factory.mktemp("packages") / "wheel")


@pytest.fixture(scope="session")
def bare_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtualenv with the wheel, without any extra."""
    return virtualenv(tmp_path_factory.mktemp("bare") / "bare", str(wheel))


@pytest.fixture
def bare(bare_environment: Path, tmp_path: Path) -> Installation:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return Installation(bare_environment, folder)
