"""What is said of lines of tracebacks, whatever a program writes into one."""

from __future__ import annotations

import pytest

from tarragon.job.tracebacks import short_line


def test_a_long_list_of_numbers_within_a_line_is_left_out() -> None:
    numbers = ", ".join(["[0.5", *["1e-3"] * 9, "2]"])

    assert short_line(f"ValueError: expected {numbers} to be 3", 240) == "ValueError: expected [… to be 3"


def test_a_long_line_loses_its_middle() -> None:
    line = f"ValueError: {'x' * 5000} is too long"

    assert short_line(line, 60) == f"ValueError: {'x' * 28} … {'x' * 5} is too long"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", ["1", "1e-", "1.", "1,[", "1, " * 7 + "x", "{{function_node ", "Zm9v0"])
def test_a_line_of_megabytes_is_shortened_at_once(part: str) -> None:
    line = "x " + part * (2**20 // len(part)) + " end"

    shown = [short_line(line, 240) for _ in range(1000)]

    assert {len(each) <= 240 and each.startswith("x ") and each.endswith(" end") for each in shown} == {True}
