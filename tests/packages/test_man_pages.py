"""What man and the shells find in an installation, when its programs are on PATH and nothing else is said to them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tarragon.cli.main import root_command
from tarragon.cli.options.command_tree import COMMANDS
from tests.conftest import ROOT
from tests.packages.conftest import Installation
from tools.man_pages import escaped, manual_pages

REFERENCE = (ROOT / "docs/reference/commands.md").read_text()


def output(bare: Installation, *command: str, variables: Mapping[str, str]) -> str:
    """Of a program that has the installation's programs on PATH."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not here")
    environment = bare.variables()
    path = f"{bare.environment / 'bin'}{os.pathsep}{environment['PATH']}"
    ended = subprocess.run(
        command,
        env={**environment, "PATH": path, **variables},
        cwd=bare.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_every_command_has_a_manual_page_with_its_options_and_examples() -> None:
    pages = manual_pages(REFERENCE, "1.2.3")

    assert pages.keys() >= {"tarragon", "tarragon-config-set", *(f"tarragon-{name}" for name in COMMANDS)}
    assert escaped("--sort-by") in pages["tarragon-list"]
    assert escaped("tarragon list --state running,failed --watch") in pages["tarragon-list"]
    assert r"tarragon\-list \- list jobs with their state, and why a job waits or failed" in pages["tarragon-list"]
    assert all(escaped(name) in pages["tarragon"] for name in root_command.list_commands(None))  # type: ignore[arg-type]


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not here")
def test_the_manual_pages_are_what_groff_understands_without_a_warning() -> None:
    for name, text in manual_pages(REFERENCE, "1.2.3").items():
        ended = subprocess.run(
            ["groff", "-man", "-ww", "-b", "-Tutf8"], input=text, capture_output=True, text=True, check=False
        )
        assert (name, ended.returncode, ended.stderr) == (name, 0, "")


def test_a_line_of_a_manual_page_is_never_taken_for_a_request() -> None:
    assert escaped(".TH") == r"\&.TH"
    assert escaped("'--x'") == r"\&'\-\-x'"
    assert escaped("a\\b") == r"a\eb"


def test_man_finds_the_pages_of_an_installation_whose_programs_are_on_path(bare: Installation) -> None:
    page = output(bare, "man", "tarragon", variables={"MANPAGER": "cat", "MANWIDTH": "100", "MANPATH": ""})
    of_list = output(bare, "man", "tarragon", "list", variables={"MANPAGER": "cat", "MANWIDTH": "100", "MANPATH": ""})

    assert "tarragon - train jobs on this machine, or on a Kubernetes cluster" in page
    assert "tarragon-list - list jobs with their state" in of_list


def test_bash_completes_with_the_script_of_an_installation(bare: Installation) -> None:
    script = bare.environment / "share/bash-completion/completions/tarragon"
    typed = "COMP_WORDS=(tarragon li); COMP_CWORD=1; _tarragon_completion tarragon; echo ${COMPREPLY[@]}"

    assert output(bare, "bash", "-c", f"source {script}; {typed}", variables={}) == "list\n"


def test_fish_completes_with_the_script_of_an_installation(bare: Installation) -> None:
    data = {"XDG_DATA_DIRS": str(bare.environment / "share")}

    assert re.match(r"list\b", output(bare, "fish", "-c", "complete -C 'tarragon li'", variables=data))


def test_zsh_completes_at_the_first_tab_with_the_script_of_an_installation(bare: Installation, tmp_path: Path) -> None:
    functions = bare.environment / "share/zsh/site-functions"
    # As compinit does: the function is loaded from fpath when it is called, where it says what it would add.
    program = (
        f"fpath=({functions} $fpath); autoload -Uz compinit; compinit -u -d {tmp_path / 'dump'}; "
        "compadd() { print -r -- ${(P)@[-1]} }; _describe() { print -r -- ${(P)3} }; "
        "words=(tarragon li); CURRENT=2; _tarragon"
    )

    assert "list" in output(bare, "zsh", "-fc", program, variables={})
