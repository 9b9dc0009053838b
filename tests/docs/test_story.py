"""The README and the tutorial, typed word for word by a reader who has nothing but this repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.commands import ENDS_WITH, Command, story_of
from tests.docs.markdown import ROOT
from tests.docs.shell import Shell

PAGES = tuple(page for page in (ROOT / "README.md", ROOT / "docs" / "tutorial.md") if page.is_file() and story_of(page))
_NEEDS = {"mpi.md": [pytest.mark.mpi], "scripts.md": [pytest.mark.tensorflow]}
HOW_TO = tuple(
    pytest.param(page, marks=_NEEDS.get(page.name, ()), id=page.name)
    for page in sorted((ROOT / "docs" / "howto").glob("*.md"))
)
_CLONE = re.compile(r"git clone (\S+)")


def readers_environment(story: tuple[Command, ...], home: Path) -> dict[str, str]:
    """The reader's own settings, a cluster of its own, and this repository in place of the public one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "TARRAGON", "VIRTUAL"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    environment = {**kept, "PATH": path, "TARRAGON_HOME": str(home)}
    address = next((match[1] for command in story if (match := _CLONE.search(command.text))), None)
    if address is not None:
        environment |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"url.{ROOT}.insteadOf",
            "GIT_CONFIG_VALUE_0": address,
        }
    return environment


@pytest.mark.tensorflow
@pytest.mark.kubectl
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_the_page_does_what_the_reader_expects(page: Path, tmp_path: Path) -> None:
    type_all(story_of(page), tmp_path)


@pytest.mark.kubectl
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", HOW_TO)
def test_every_command_of_a_how_to_does_what_the_reader_expects(page: Path, tmp_path: Path) -> None:
    type_all(story_of(page), tmp_path)


def type_all(story: tuple[Command, ...], tmp_path: Path) -> None:
    """Whoever reads a how-to has typed the tutorial, and has the command on the PATH."""
    clones = bool(story) and _CLONE.search(story[0].text) is not None
    environment = readers_environment(story, tmp_path / "home")

    try:
        with Shell(tmp_path if clones else ROOT, environment) as shell:
            for command in story:
                result = shell.run(command.text, timeout=600)

                assert result.exit_code == ENDS_WITH.get(command.text, 0), f"{command}\n{result.output}"
    finally:
        subprocess.run([ROOT / ".venv/bin/tarragon", "down"], env=environment, timeout=60, check=False)
