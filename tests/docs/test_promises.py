"""What is not built yet is not promised where people first read of Tarragon."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tarragon.cli.options.command_tree import HELP_PAGE, help_page
from tarragon.frameworks.registry import kinds_in_words
from tarragon.frameworks.unsupported_kinds import NOT_YET, UNSUPPORTED_KINDS
from tests.conftest import ROOT

OTHERS = [kind for row in UNSUPPORTED_KINDS if row.message == NOT_YET for kind in row.kinds]


def promises(text: str) -> list[str]:
    return [kind for kind in OTHERS if kind.lower() in text.lower()]


def test_the_summary_of_the_package_names_only_what_it_runs() -> None:
    summary = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["description"]

    assert kinds_in_words() in summary
    assert promises(summary) == []


def test_the_first_page_of_the_command_names_only_what_it_runs() -> None:
    assert promises(HELP_PAGE) == []
    for program in ("tarragon", "kubectl-tarragon"):
        assert f"Train {kinds_in_words()} on " in help_page(program, program)


@pytest.mark.parametrize("page", sorted((ROOT / "deploy").rglob("*.yaml")), ids=lambda page: page.name)
def test_what_is_installed_in_a_cluster_names_only_what_it_runs(page: Path) -> None:
    assert promises(page.read_text()) == []


def test_the_readme_names_other_kinds_only_where_it_says_not_yet() -> None:
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if promises(line)]

    assert lines
    assert all("not yet" in line for line in lines)
