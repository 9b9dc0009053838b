"""Rows of numbers are told from other lines, and blocks of them are shortened."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from tarragon.base.number_rows import extend_shortened, is_number_row, shortened


@pytest.mark.parametrize(
    ("line", "is_row"),
    [
        ("array([[0.5488135 , 0.71518934],", True),
        ("       [4.5e-01, nan, inf]], dtype=float32)>", True),
        (" ...,", True),
        ("0 1 2 | 3", True),
        ("[True False 1]", True),
        (" 899.]]", True),
        ("        -1.994013  ],", True),
        ("         1.3749641 ]], dtype=float32)>", True),
        ("[-1 ", True),
        (" 3.5 -4", True),
        ("17", False),
        ("step 5", False),
        ("2026-01-01 12:00:00 I saved", False),
        ("}) of shape (3, 4)", False),
        ("-----", False),
        ("", False),
    ],
)
def test_a_row_of_numbers_is_recognised(line: str, *, is_row: bool) -> None:
    assert is_number_row(line) is is_row


@pytest.mark.parametrize("shape", [(900,), (30, 30), (9, 9, 9), (3, 2, 2), (2, 3, 2, 9)])
def test_an_array_of_numpy_is_shortened_to_three_lines(shape: tuple[int, ...]) -> None:
    text = repr(np.random.default_rng(0).random(shape)).split("\n")

    first, second, marker, *rest = [line for line in shortened(["ValueError: of", *text, "so much"])[1:-1] if line]

    assert [first, second] == [line for line in text if line][:2]
    assert marker == f"… {len([line for line in text if line]) - 2} more rows of numbers"
    assert not rest


def test_an_array_whose_rows_are_wrapped_is_one_block() -> None:
    wrapped = repr(np.random.RandomState(0).randn(32, 16).astype("float32")).split("\n")

    assert shortened([*wrapped, "so much"]) == [
        *wrapped[:2],
        f"… {len(wrapped) - 2} more rows of numbers",
        "so much",
    ]


def test_what_came_before_is_remembered_from_call_to_call() -> None:
    lines = deque(["loss"], maxlen=10)

    for number in range(100):
        extend_shortened(lines, [f"{number} {number}"])
    extend_shortened(lines, ["end"])

    assert list(lines) == ["loss", "0 0", "1 1", "… 98 more rows of numbers", "end"]


def test_lines_of_words_stay_as_they_are() -> None:
    lines = [f"step {number}, loss 0.5" for number in range(9)]

    assert shortened(lines) == lines


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "part",
    ["1", "1" + " " * 999, "1 " + "[" * 99, "[" + " " * 99, "a1/", "1e-", "dtype=a.", ".", "Zm9v0"],
)
def test_a_line_of_megabytes_is_judged_at_once(part: str) -> None:
    line = "x " + part * (2**20 // len(part))

    assert shortened([line] * 1000) == [line] * 1000


def test_of_a_long_line_only_the_beginning_is_judged() -> None:
    assert is_number_row("1 " * 512 + "and so on")
    assert not is_number_row("x" * 1024 + " 1 2 3")
