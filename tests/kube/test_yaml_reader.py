from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tarragon.kube.yaml_reader import MAX_VALUES, read_yaml


def value(text: str) -> Any:
    (document,), problems = read_yaml(text)
    assert problems == []
    return document.value


def problem_texts(text: str) -> list[str]:
    return [str(problem) for problem in read_yaml(text)[1]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", 3),
        ("-3", -3),
        ("1_000", 1000),
        ("0777", 511),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b101", 5),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("true", True),
        ("yes", True),
        ("Off", False),
        ("'yes'", "yes"),
        ("y", "y"),
        ("08", "08"),
        ("12:30", "12:30"),
        ("2026-11-21", "2026-11-21"),
        ("1.2.3", "1.2.3"),
        ("500m", "500m"),
        (".nan", ".nan"),
        ("1e999", "1e999"),
        ("9" * 5000, "9" * 5000),
        ("!!str 3", "3"),
        ("!!int 3", 3),
        ('!!int "3"', 3),
        ("! 3", "3"),
    ],
)
def test_scalars_are_read_as_kubectl_reads_them(text: str, expected: Any) -> None:
    found = value(f"a: {text}")["a"]

    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("text", ["a:", "a: ~", "a: null"])
def test_null_is_null(text: str) -> None:
    assert value(text) == {"a": None}


def test_keys_are_text_whatever_they_look_like() -> None:
    assert value("1: a\nyes: b\n2026-11-21: c\n") == {"1": "a", "yes": "b", "2026-11-21": "c"}


def test_anchors_and_merges_are_followed() -> None:
    text = "base: &b {x: 1, y: 2}\nother: &o {x: 3, z: 4}\nboth: {<<: [*b, *o], y: 5}\nsame: *b\n"

    assert value(text)["both"] == {"x": 1, "y": 5, "z": 4}
    assert value(text)["same"] == {"x": 1, "y": 2}


def test_a_key_in_quotes_merges_nothing() -> None:
    assert value("a: {'<<': 3}") == {"a": {"<<": 3}}


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, levels)]
    return "\n".join(lines)


def test_a_bomb_of_anchors_is_refused_before_it_goes_off() -> None:
    (problem,) = problem_texts(bomb(30))

    assert f"has more than {MAX_VALUES} values once its anchors are expanded" in problem
    assert problem_texts(bomb(3)) == []


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 5_000, "- " * 5_000, "a: " + "[" * 200 + "]" * 200])
def test_a_text_that_is_nested_too_deeply_is_refused(text: str) -> None:
    assert [problem.endswith("is nested deeper than 100 levels") for problem in problem_texts(text)] == [True]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: *x", "line 1: the alias *x has no anchor before it"),
        ("a: &a [*a]", "line 1: the alias *a has no anchor before it"),
        ("a: 1\na: 2\n", "line 2: duplicate key a, first used in line 1"),
        ("? [a]\n: b", "line 1: a key must be text, not a map or a list"),
        ("k: &k x\n*k : b", "line 2: a key must be text, not an alias"),
        ("?\n: b", "line 1: a key is missing before the colon"),
        ("a: {<<: 3}", "line 1: the value of << must be a map or a list of maps"),
        ("a: !!binary aGk=", "line 1: unsupported tag tag:yaml.org,2002:binary; remove it"),
        ("x" * (8 * 2**20 + 1), "has 8388609 characters, more than the maximum of 8388608"),
    ],
)
def test_what_has_no_meaning_in_json_is_refused(text: str, words: str) -> None:
    assert problem_texts(text) == [words]


def test_every_part_knows_its_line_and_a_missing_one_that_of_what_is_around_it() -> None:
    (document,), _ = read_yaml("# a comment\nspec:\n  items:\n  - name: x\n  - name: y\n")

    assert document.line_of("spec.items[1].name") == 5
    assert document.line_of("spec.items[1].image") == 5
    assert document.line_of("spec.items") == 3
    assert document.line_of("spec.other") == 2
    assert document.line_of("nothing") == 2


LINE_ENDS = "\x85\u2028\u2029"
"""PyYAML writes these, and reads them as others."""

texts = st.text(st.characters(codec="utf-8", exclude_characters=LINE_ENDS), max_size=6)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_what_pyyaml_writes_is_read_again(found: Any) -> None:
    # In quotes: without them, 0E0 is text for PyYAML and a number for kubectl.
    text = yaml.safe_dump({"a": found}, allow_unicode=True, default_style='"')

    assert value(text) == {"a": found}


@given(st.text(st.sampled_from(list("ab:{}[]-?*&!|>'\"%@#,\n\t ~<\x00\u00e9\U0001f600")), max_size=60))
def test_no_text_whatsoever_raises(text: str) -> None:
    documents, problems = read_yaml(text)

    assert isinstance(documents, list)
    assert all(str(problem) for problem in problems)
