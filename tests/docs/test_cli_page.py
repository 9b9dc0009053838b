"""The page about the command line says what the code does, and the reference of commands is the code's."""

from __future__ import annotations

import re

from tarragon.cli.jobview import exit_code
from tarragon.cli.options import command_tree, error_output
from tests.docs.markdown import ROOT


def test_every_exit_code_of_the_code_stands_on_the_page() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}

    known = {
        exit_code.SUCCEEDED,
        exit_code.FAILED,
        exit_code.UNFINISHED,
        exit_code.DELETED,
        exit_code.EVICTED,
        exit_code.NEVER_FITS,
    }
    assert codes == known | {1, 2, error_output.CRASHED, 102, 130, command_tree.BROKEN_PIPE}
