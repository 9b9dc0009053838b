from __future__ import annotations

import json

import pytest

from tarragon.job.termination_message import telling_line
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


KERAS_2 = " 4/32 [==>...........] - ETA: 1s - loss: 1.7494"
KERAS_3 = "32/32 ━━━━━━━━━━━━━━━━━━━━ 1s 2ms/step - accuracy: 0.9062 - loss: 0.5 - val_loss: nan"
TQDM = "Epoch 3:  12%|█▏        | 12/100 [00:01<00:10,  8.1it/s, loss=0.5]"


@pytest.mark.parametrize("bar", [KERAS_2, KERAS_3, TQDM, f"{KERAS_2}\r{KERAS_2}", "Epoch 1/8"])
def test_a_progress_bar_is_told_of_no_failure(bar: str) -> None:
    assert telling_line(f"can't reach worker-3\n{bar}\n") == "can't reach worker-3"
    assert telling_line(bar) == ""


@pytest.mark.parametrize("bar", [KERAS_2, TQDM])
def test_what_a_program_writes_behind_a_bar_is_told(bar: str) -> None:
    assert telling_line(f"start\n{bar}Aborted: no space left") == f"{bar}Aborted: no space left".strip()


@pytest.mark.parametrize("name", sorted(path.stem for path in OUTPUTS.iterdir()))
def test_what_mpirun_prints_is_known_by_what_led_to_it(name: str) -> None:
    assert telling_line((OUTPUTS / f"{name}.txt").read_text()) == EXPECTED[name]
