from __future__ import annotations

import pytest

from tarragon.job.termination_message import telling_line

RULE = "-" * 74


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("", ""),
        ("killed\n", "killed"),
        ("Traceback:\n  File\nValueError: 5\n", "ValueError: 5"),
        (f"[a] warning\n{RULE}\n\nThere are no slots\n\nAsk for fewer.\n{RULE}\n", "There are no slots"),
        (f"{RULE}\nThere are no slots\n{RULE}\n\0\n", "There are no slots"),
        (f"{RULE}\none\n{RULE}\n{RULE}\ntwo\nmore\n{RULE}", "two"),
        (f"the end of a long message\n{RULE}", "the end of a long message"),
        (RULE, ""),
    ],
)
def test_a_message_between_rules_is_known_by_its_first_line_and_any_other_by_its_last(message: str, line: str) -> None:
    assert telling_line(message) == line
