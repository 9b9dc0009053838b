from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.base.index_ranges import format_ranges, parse_ranges


@pytest.mark.parametrize(
    ("found", "text"),
    [([], ""), ([0], "0"), ([3, 1, 2, 2], "1-3"), ([0, 2, 3, 9], "0,2-3,9")],
)
def test_neighbours_are_written_as_one_range(found: list[int], text: str) -> None:
    assert format_ranges(found) == text


@given(st.frozensets(st.integers(0, 300)), st.sampled_from([2, 3]))
def test_what_is_written_is_read_again(found: frozenset[int], shortest: int) -> None:
    assert parse_ranges(format_ranges(found, shortest_range=shortest), 1000) == found


@pytest.mark.parametrize("text", ["x", "1-", "-1", "1--2", "1;2", "0x1", "1-2-3", "99999999999", "0-1000", "\u0661"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not an index range|more than"):
        parse_ranges(text, 1000)


@pytest.mark.parametrize("value", [3, None, ["0"]])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        parse_ranges(value, 1000)


def test_two_consecutive_indexes_can_be_written_one_by_one_as_kubernetes_does() -> None:
    assert format_ranges([0, 1, 2, 4, 6, 7], shortest_range=3) == "0-2,4,6,7"
