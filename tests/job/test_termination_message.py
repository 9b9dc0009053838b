from __future__ import annotations

import json

import pytest

from tarragon.job.termination_message import telling_excerpt, telling_line
from tests.conftest import ROOT

RULE = "-" * 74
OUTPUTS = ROOT / "tests" / "data" / "mpi" / "output"
"""What Open MPI 5.0.11 and 4.1.8, MPICH 5.0.2 and Intel MPI 2021.18 print; host names and folders are replaced."""
EXPECTED = json.loads((OUTPUTS.parent / "telling_lines.json").read_text())


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("", ""),
        ("killed\n", "killed"),
        ("Traceback:\n  File\nValueError: 5\n", "ValueError: 5"),
        (f"[a] warning\n{RULE}\n\nThere are no slots\n\nAsk for fewer.\n{RULE}\n", "There are no slots"),
        (f"{RULE}\nThere are no slots\n{RULE}\n\0\n", "There are no slots"),
        (f"{RULE}\none\n{RULE}\n{RULE}\ntwo\nmore\n{RULE}", "two more"),
        (f"the end of a long message\n{RULE}", "the end of a long message"),
        (f"Results\n{RULE}\n0.5 0.6\nValueError: 5", "ValueError: 5"),
        ("10%\r20%\rValueError: 5\r\n", "ValueError: 5"),
        (RULE, ""),
    ],
)
def test_a_message_between_rules_is_known_by_its_first_sentence_and_any_other_by_its_last_line(
    message: str, line: str
) -> None:
    assert telling_line(message) == line


@pytest.mark.parametrize("name", sorted(path.stem for path in OUTPUTS.iterdir()))
def test_what_mpirun_prints_is_known_by_what_led_to_it(name: str) -> None:
    assert telling_line((OUTPUTS / f"{name}.txt").read_text()) == EXPECTED[name]


def test_an_excerpt_has_the_last_lines() -> None:
    lines = [f"step {number}" for number in range(30)]

    assert telling_excerpt([*lines, "", "ValueError: 5", ""], 4) == ["step 27", "step 28", "step 29", "ValueError: 5"]


def test_an_excerpt_keeps_what_a_rank_has_said_before_the_boxes_of_mpirun() -> None:
    said = (OUTPUTS / "openmpi4-rank-raises.txt").read_text().split("\n")
    lines = [*(f"step {number}" for number in range(30)), *said]

    found = telling_excerpt(lines, 8)

    assert found[:4] == said[:4]
    assert found[4] == "… 5 more lines"
    assert found[5:] == [line for line in said if line][-4:]


def test_an_excerpt_keeps_the_beginning_of_a_long_box() -> None:
    said = (OUTPUTS / "openmpi5-too-few-slots.txt").read_text().split("\n")

    found = telling_excerpt(said, 20)

    assert "There are not enough slots available in the system to satisfy the 200" in found
    assert found[-2:] == ["launch.", "-" * 74]
