from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.job.indexes import by_type, indexes, ranges, replicas, words
from tarragon.job.model import Replica, ReplicaType


@pytest.mark.parametrize(
    ("found", "text"),
    [([], ""), ([0], "0"), ([3, 1, 2, 2], "1-3"), ([0, 2, 3, 9], "0,2-3,9")],
)
def test_neighbours_are_written_as_one_range(found: list[int], text: str) -> None:
    assert ranges(found) == text


@given(st.frozensets(st.integers(0, 300)))
def test_what_is_written_is_read_again(found: frozenset[int]) -> None:
    assert indexes(ranges(found)) == found


@given(st.frozensets(st.builds(Replica, st.sampled_from(ReplicaType), st.integers(0, 50))))
def test_replicas_of_all_types_are_read_again(found: frozenset[Replica]) -> None:
    assert replicas(by_type(found)) == found


@pytest.mark.parametrize("text", ["x", "1-", "-1", "1--2", "1;2", "0x1", "1-2-3", "99999999999", "0-100000"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not an index range|more than"):
        indexes(text)


@pytest.mark.parametrize("value", [3, None, ["0"]])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        indexes(value)


def test_people_read_types_with_their_indexes() -> None:
    members = [Replica(ReplicaType.WORKER, 0), Replica(ReplicaType.WORKER, 1), Replica(ReplicaType.PS, 0)]

    assert words(members) == "ps 0, worker 0-1"
