from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tarragon.kube.merge_patch import apply_merge_patch, create_merge_patch

JSON = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


@given(OBJECTS, OBJECTS)
def test_the_difference_of_two_objects_turns_the_one_into_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert apply_merge_patch(before, create_merge_patch(before, after)) == after


@given(OBJECTS)
def test_equal_objects_have_no_difference(value: dict[str, Any]) -> None:
    assert create_merge_patch(value, value) == {}


def test_null_removes_and_a_list_is_replaced_whole() -> None:
    assert apply_merge_patch({"a": 1, "b": [1, 2]}, {"a": None, "b": [3], "c": {"d": None}}) == {"b": [3], "c": {}}


def test_what_is_patched_stays_as_it_was() -> None:
    before = {"a": {"b": 1}}
    apply_merge_patch(before, {"a": {"b": 2}})
    assert before == {"a": {"b": 1}}
