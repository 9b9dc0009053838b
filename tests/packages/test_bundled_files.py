from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarragon.cli.bundled.pages import sections
from tests.cli.conftest import Shell, shell
from tests.conftest import ROOT
from tests.docs.markdown import anchors
from tests.packages.conftest import Installation

__all__ = ["shell"]

pytestmark = [pytest.mark.xdist_group("packages"), pytest.mark.timeout(400)]  # the first one builds and installs

PAGE = re.compile(r"tarragon docs ([a-z][\w/-]*(?:#[\w-]+)?)")
FILE = re.compile(r"\b(docs|examples|deploy)/|\w\.md\b")


def messages() -> Iterator[tuple[str, str]]:
    """The strings of the source, without docstrings, and where each stands."""
    for path in sorted((ROOT / "tarragon").rglob("*.py")):
        tree = ast.parse(path.read_text())
        documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def test_no_message_names_a_file_that_an_installation_lacks() -> None:
    found = [f"{place}: {text}" for place, text in messages() if FILE.search(text)]

    assert [each for each in found if not each.startswith("tarragon/cli/bundled/")] == []


def test_every_page_that_a_message_names_is_in_the_wheel(bare: Installation) -> None:
    named = sorted({page for _, text in messages() for page in PAGE.findall(text)})

    printed = bare(
        "-c",
        "import sys; from tarragon.cli.bundled.pages import read_page; [read_page(page) for page in sys.argv[1:]]",
        *named,
        program="python",
    )

    assert len(named) > 4
    assert printed.stderr == ""


@pytest.mark.parametrize("page", ["scheduling", "howto/gpus", "cli"])
def test_sections_have_the_anchors_that_links_use(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()

    assert {anchor for anchor, _, _ in sections(text)} == anchors(text)


def test_a_section_ends_where_the_next_one_begins(shell: Shell) -> None:
    whole, part = shell("docs", "scheduling").out, shell("docs", "scheduling#why-a-job-waits").out

    assert part.startswith("## Why a job waits\n")
    assert part in whole
    assert part.count("\n## ") == 0


def test_a_page_or_section_that_is_not_there_is_reported_with_the_nearest(shell: Shell) -> None:
    page, section = shell("docs", "schedulling"), shell("docs", "scheduling#why-a-job-wait")

    assert (page.code, page.err) == (
        1,
        "Error: there is no page schedulling\n  did you mean scheduling?\n  `tarragon docs` lists all pages\n",
    )
    assert "did you mean why-a-job-waits?" in section.err


def test_a_checkout_and_an_installation_have_the_same_pages_and_examples(shell: Shell, bare: Installation) -> None:
    for words in (("docs",), ("examples",)):
        ours, theirs = shell(*words).out, bare(*words).stdout

        assert len(ours.splitlines()) > 10
        assert ours.partition("\n\n")[0] == theirs.partition("\n\n")[0]


def test_examples_are_written_once_and_overwritten_only_by_force(shell: Shell) -> None:
    assert shell("examples", "x").code == 0
    Path(shell.folder, "x/mpi/ring.yaml").write_text("mine")

    again = shell("examples", "x")

    assert again.code == 1
    assert "exists already\n" in again.err
    assert Path(shell.folder, "x/mpi/ring.yaml").read_text() == "mine"
    assert shell("examples", "x", "--force").code == 0
    assert Path(shell.folder, "x/mpi/ring.yaml").read_bytes() == (ROOT / "examples/mpi/ring.yaml").read_bytes()


def test_examples_that_cannot_be_written_say_why(shell: Shell) -> None:
    shell.file("x", "a file")

    ended = shell("examples", "x/y")

    assert ended.code == 1
    assert ended.err.startswith("Error: the examples can't be written to x/y\n  Not a directory\n")


def test_the_examples_of_an_installation_are_valid_outside_of_the_project(bare: Installation) -> None:
    written = bare("examples", "x")

    commands = [line.split("tarragon ", 1)[1].split() for line in written.stdout.splitlines() if "  validate" in line]
    assert commands == [["validate", "x/tensorflow/ps.yaml"]]
    manifests = [
        path for path in (bare.folder / "x").rglob("*.yaml") if re.search(r"(?m)^kind: \w+Job$", path.read_text())
    ]
    files = sorted(str(path.relative_to(bare.folder)) for path in manifests)
    ended = bare("validate", *files)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(" is valid") >= len(files)
