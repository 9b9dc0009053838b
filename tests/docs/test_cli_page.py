"""The page about the command line says what the code does, and the reference of commands is the code's."""

from __future__ import annotations

import re

from tarragon.cli import told, tree
from tarragon.cli.report import outcome
from tests.docs.markdown import ROOT


def test_every_exit_code_of_the_code_stands_on_the_page() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}

    known = {outcome.SUCCEEDED, outcome.FAILED, outcome.UNFINISHED, outcome.GONE, outcome.EVICTED}
    assert codes == known | {1, 2, told.CRASHED, 102, 130, tree.READER_WENT}
