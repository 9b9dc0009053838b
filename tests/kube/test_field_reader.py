from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from tarragon.kube.field_reader import CollectedProblems, FieldReader, describe_value, join_path, nearest_name


class Fruit(StrEnum):
    APPLE = "Apple"
    PEAR = "Pear"


def reader(value: Any) -> FieldReader:
    return FieldReader(value, "a", CollectedProblems())


def problem_texts(found: FieldReader) -> list[str]:
    return [str(problem) for problem in found.notes.problems]


@pytest.mark.parametrize(
    ("name", "meant"),
    [("comand", "command"), ("COMMAND", "command"), ("cleanpodpolicy", "cleanPodPolicy"), ("zebra", None), ("", None)],
)
def test_the_nearest_name_is_the_one_that_was_probably_meant(name: str, meant: str | None) -> None:
    assert nearest_name(name, ["command", "args", "cleanPodPolicy"]) == meant


@pytest.mark.parametrize(
    ("path", "name", "whole"),
    [
        ("", "spec", "spec"),
        ("spec", "max-instances", "spec.max-instances"),
        ("limits", "nvidia.com/gpu", 'limits["nvidia.com/gpu"]'),
        ("a", "x\ny" * 99, f'a["{("x y" * 99)[:60]}…"]'),
    ],
)
def test_a_path_is_written_as_a_user_would(path: str, name: str, whole: str) -> None:
    assert join_path(path, name) == whole


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "nothing"),
        (True, "true"),
        (3, "3"),
        (1.5, "1.5"),
        ("x", 'the text "x"'),
        ([], "a list"),
        ({}, "a map"),
        pytest.param(10**5000, "a number of more than 30 digits", id="huge"),
        ("a\x1b[31mb", 'the text "a [31mb"'),
    ],
)
def test_a_value_is_described_in_words_that_fit_a_sentence(value: Any, words: str) -> None:
    assert describe_value(value) == words


def test_missing_values_are_no_problem() -> None:
    missing = reader({}).field("b").field("c")

    assert (missing.string(), missing.integer(), missing.boolean(), missing.string_map()) == ("", None, False, {})
    assert missing.enum(Fruit, Fruit.PEAR) is Fruit.PEAR
    assert (list(missing.items()), list(missing.fields()), problem_texts(missing)) == ([], [], [])


def test_a_whole_number_is_neither_a_truth_nor_a_float_nor_text() -> None:
    for value in (True, 1.0, "1", [1]):
        found = reader(value)

        assert found.integer() is None
        assert len(problem_texts(found)) == 1


def test_a_choice_in_other_capitals_gets_the_right_ones() -> None:
    found = reader("apple")

    assert found.enum(Fruit, Fruit.PEAR) is Fruit.PEAR
    assert problem_texts(found) == ['a: must be Apple or Pear, not the text "apple"; did you mean Apple?']


def test_a_key_that_is_no_text_is_a_problem() -> None:
    found = reader({3: "x", "b": "y"})

    assert [name for name, _ in found.fields()] == ["b"]
    assert problem_texts(found) == ["a: has the key 3, but keys must be text; put it in quotes"]
