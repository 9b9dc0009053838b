"""Changes between two values, which are encoded as text and applied to the same or an edited value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.frameworks.kubeflow.conversion.json_changes import apply, diff, from_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "x" * 120]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def kept(before: Any, after: Any) -> Any:
    return from_json(json.loads(json.dumps([change.as_json() for change in diff(before, after)])))


@given(before=JSON, after=JSON)
def test_the_changes_between_two_values_lead_from_one_to_the_other(before: Any, after: Any) -> None:
    assert json.dumps(apply(before, kept(before, after)), sort_keys=True) == json.dumps(after, sort_keys=True)


@given(value=JSON)
def test_a_value_has_no_changes_to_itself(value: Any) -> None:
    assert list(diff(value, value)) == []


def test_edited_values_are_kept_and_other_changes_are_applied() -> None:
    before, after = {"a": 1, "b": {"c": 2}}, {"a": 9, "b": {"d": 3}}

    assert apply({"a": 5, "b": {"c": 2}, "e": 6}, kept(before, after)) == {"a": 5, "b": {"d": 3}, "e": 6}


def test_true_is_not_equal_to_one() -> None:
    assert [change.is_ for change in diff({"a": 1}, {"a": True})] == [True]


def test_a_long_value_is_recognized_by_its_hash() -> None:
    [change] = diff({"a": "x" * 5000}, {"a": "y"})

    assert len(json.dumps(change.as_json())) < 200
    assert apply({"a": "x" * 5000}, kept({"a": "x" * 5000}, {"a": "y"})) == {"a": "y"}
    assert apply({"a": "x" * 4999}, kept({"a": "x" * 5000}, {"a": "y"})) == {"a": "x" * 4999}


@pytest.mark.parametrize("text", ["null", "3", '"x"', "[3]", '[{"at": "x"}]', '[{"was": 1}]', '[{"at": [{}]}]', "{}"])
def test_invalid_text_is_rejected(text: str) -> None:
    found = json.loads(text)

    if found == {}:
        assert from_json(found) == []
        return
    with pytest.raises(ValueError, match="change"):
        from_json(found)
