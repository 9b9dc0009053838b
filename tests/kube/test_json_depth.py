from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tarragon.kube.codec import decode, encode
from tarragon.kube.json_depth import (
    MAX_DEPTH,
    TOO_DEEP_PLACEHOLDER,
    is_depth_within,
    truncate_depth,
    with_limited_depth,
)

Json = Any
NAMES = st.text('{}["\\a', max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('{}[]"\\,:aé', max_size=6),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(NAMES, children, max_size=3),
    max_leaves=20,
)


def depth(value: Json) -> int:
    match value:
        case dict():
            return 1 + max(map(depth, value.values()), default=0)
        case list():
            return 1 + max(map(depth, value), default=0)
        case _:
            return 0


def without_depths(value: Json, levels: int) -> Json:
    if isinstance(value, dict | list) and not levels:
        return TOO_DEEP_PLACEHOLDER
    match value:
        case dict():
            return {name: without_depths(child, levels - 1) for name, child in value.items()}
        case list():
            return [without_depths(child, levels - 1) for child in value]
        case _:
            return value


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


@example(value="{", levels=0, is_ascii=True)
@given(value=VALUES, levels=st.integers(0, 8), is_ascii=st.booleans())
def test_a_text_is_within_as_many_levels_as_its_value_has(value: Json, levels: int, is_ascii: bool) -> None:  # noqa: FBT001 - drawn
    text = json.dumps(value, ensure_ascii=is_ascii).encode()

    assert is_depth_within(text, levels) == (depth(value) <= levels)


@given(VALUES, st.integers(1, 8), st.booleans())
def test_a_limited_text_is_the_value_without_what_is_deeper(value: Json, levels: int, is_ascii: bool) -> None:  # noqa: FBT001 - drawn
    text = json.dumps(value, ensure_ascii=is_ascii, indent=1).encode()

    assert json.loads(truncate_depth(text, levels)) == without_depths(value, levels)


UNCLOSED = {
    "quotes": b'"' + b'\\"' * 500_000,
    "values": b'{"a":"' * 100_000,
    "escapes": b'"\\' * 300_000,
    "lists": b"[" * 500_000,
}


@pytest.mark.parametrize("text", UNCLOSED.values(), ids=UNCLOSED)
def test_a_text_that_never_closes_what_it_opens_costs_no_more_than_any_other(text: bytes) -> None:
    """A pattern that goes back over what it has read would take hours here."""
    assert with_limited_depth(text) == text or len(truncate_depth(text, MAX_DEPTH)) < len(text)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 985, 9_900, 250_000])
@pytest.mark.parametrize("model", [dict, object])
def test_a_value_without_a_schema_is_read_to_the_limit(model: type[Json], levels: int) -> None:
    value = decode(nested(levels), model)

    assert depth(value) == MAX_DEPTH
    assert TOO_DEEP_PLACEHOLDER.encode() in encode(value)


def test_at_the_limit_nothing_is_left_out() -> None:
    assert encode(decode(nested(MAX_DEPTH), dict)) == nested(MAX_DEPTH)
