from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS, ROLES
from tarragon.job.index_ranges import describe_replicas, format_ranges, format_replicas, parse_ranges, parse_replicas
from tarragon.job.model import Replica


@pytest.mark.parametrize(
    ("found", "text"),
    [([], ""), ([0], "0"), ([3, 1, 2, 2], "1-3"), ([0, 2, 3, 9], "0,2-3,9")],
)
def test_neighbours_are_written_as_one_range(found: list[int], text: str) -> None:
    assert format_ranges(found) == text


@given(st.frozensets(st.integers(0, 300)))
def test_what_is_written_is_read_again(found: frozenset[int]) -> None:
    assert parse_ranges(format_ranges(found)) == found


@given(st.frozensets(st.builds(Replica, st.sampled_from(list(ROLES)), st.integers(0, 50))))
def test_replicas_of_all_types_are_read_again(found: frozenset[Replica]) -> None:
    assert parse_replicas(format_replicas(found)) == found


@pytest.mark.parametrize("text", ["x", "1-", "-1", "1--2", "1;2", "0x1", "1-2-3", "99999999999", "0-100000"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not an index range|more than"):
        parse_ranges(text)


@pytest.mark.parametrize("value", [3, None, ["0"]])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        parse_ranges(value)


def test_people_read_types_with_their_indexes() -> None:
    members = [Replica(WORKER, 0), Replica(WORKER, 1), Replica(PS, 0)]

    assert describe_replicas(members) == "ps 0, worker 0-1"
