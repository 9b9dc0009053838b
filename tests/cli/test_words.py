from __future__ import annotations

import datetime as dt
from itertools import pairwise, zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.cli.options.command_tree import COMMANDS
from tarragon.cli.output.style import colored, without_colors
from tarragon.cli.output.words import age, count, duration_text, joined, span, table
from tarragon.cli.output.wrapping import UNBOUNDED, clipped, wrap_lines, wrap_prose, wrapped_table


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.04 s"),
        (0.098, "0.1 s"),
        (0, "0.0 s"),
        (14.24, "14.2 s"),
        (59.96, "1 min 0 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, words: str) -> None:
    assert duration_text(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172800, "2d"), (-5, "0s")]
)
def test_an_age_has_one_unit(seconds: float, words: str) -> None:
    now = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)

    assert age(now - dt.timedelta(seconds=seconds), now) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0s"), (59, "59s"), (60, "1m"), (200, "3m20s"), (7500, "2h5m"), (90000, "1d1h"), (86400 * 3 + 60, "3d")],
)
def test_a_duration_in_a_column_has_at_most_two_units(seconds: float, words: str) -> None:
    assert span(dt.timedelta(seconds=seconds)) == words


def test_counts_are_english() -> None:
    assert [count(1, "replica"), count(3, "replica"), count(2, "process"), count(2, "entry")] == [
        "1 replica",
        "3 replicas",
        "2 processes",
        "2 entries",
    ]


def test_a_long_list_says_how_many_more() -> None:
    assert joined(["a", "b", "c"]) == "a, b and c"
    assert joined(["a", "b", "c"], most=2) == "a, b and 1 more"
    assert joined(["a"]) == "a"


def test_a_table_has_its_columns_under_each_other_and_no_spaces_at_the_end() -> None:
    assert table(("NAME", "STATE"), [("digits", "Running"), ("x", "")]) == [
        "NAME     STATE",
        "digits   Running",
        "x",
    ]


def test_prose_breaks_between_words_and_continues_below_its_beginning() -> None:
    assert list(wrap_prose("  one two three four", 12)) == ["  one two", "    three", "    four"]


def test_a_word_wider_than_the_terminal_is_not_cut_so_that_its_copy_is_whole() -> None:
    path = "/data/some/very/long/path.tfrecord"

    assert list(wrap_prose(f"no file {path} here", 20)) == ["no file", f"    {path}", "    here"]


@pytest.mark.parametrize(
    "command",
    [
        "`tarragon docs operator#printed-progress`",
        "kubectl annotate -n team tfjob digits tarragon.dev/adopt=true",
        "/opt/bin/python -m tarragon describe digits",
        "export KUBECONFIG=$(tarragon kubeconfig) && kubectl get tfjobs",
        "python train.py and what its argument is",
        "kubectl -n team edit tfjob digits and save it",
    ],
)
def test_a_command_in_prose_is_on_one_row(command: str) -> None:
    assert f"    {command};" in list(wrap_prose(f"to see it: {command}; it helps", 30))


@pytest.mark.parametrize("name", [*COMMANDS])
def test_each_command_of_tarragon_is_on_one_row(name: str) -> None:
    assert f"    tarragon {name} a-job-of-some-length" in [
        *wrap_prose(f"then: tarragon {name} a-job-of-some-length", 24)
    ]


@pytest.mark.parametrize("program", ["python", "kubectl", "tarragon", "helm"])
def test_a_sentence_that_begins_with_a_program_breaks_between_its_words(program: str) -> None:
    said = f"warning: {program} is not installed on this machine so no replica can start"

    assert all(len(row) <= 30 for row in wrap_prose(said, 30))


def test_rows_of_tables_stay_whole() -> None:
    row = "  why        /opt/bin/python -m tarragon why plain"

    assert list(wrap_prose(row, 30)) == [row]


def test_prose_in_colour_continues_in_it() -> None:
    rows = list(wrap_prose(colored("one two three", "red"), 9))

    assert [without_colors(row) for row in rows] == ["one two", "    three"]
    assert rows == [colored("one two", "red"), f"    {colored('three', 'red')}"]


def test_quoted_output_keeps_its_margin_in_every_row() -> None:
    assert list(wrap_prose("  │ x = 1    # one two", 18)) == ["  │ x = 1    # one", "  │   two"]


def test_rows_of_quoted_output_keep_its_indentation() -> None:
    assert list(wrap_prose("  │     x = one, two", 17)) == ["  │     x = one,", "  │       two"]
    assert list(wrap_prose("  │     /data/very/long/path", 17)) == ["  │     /data/very/long/path"]
    assert list(wrap_prose(f"  │ {' ' * 12}one two", 17)) == [f"  │ {' ' * 12}one", "  │   two"]


def test_no_row_is_blank() -> None:
    assert list(wrap_prose("one two ", 7)) == ["one two"]
    assert list(wrap_prose(colored("one two ", "red"), 7)) == [colored("one two ", "red")]
    assert list(wrap_prose("one  two", 4)) == ["one", "    two"]
    assert list(wrap_prose(colored("  onetwo three", "red"), 7)) == [
        colored("  onetwo", "red"),
        f"    {colored('three', 'red')}",
    ]


def test_the_marks_of_a_quoted_traceback_are_below_the_code_that_they_mark() -> None:
    code = "  │     result = layer(inputs, weights) + bias"
    marks = "  │              ~~~~~^^^^^^^^^^^^^^^^^"

    assert list(wrap_lines([code, marks, "  │ ValueError: no"], 28)) == [
        "  │     result =",
        "  │       layer(inputs,",
        "  │       ~~~~~^^^^^^^^",
        "  │       weights) + bias",
        "  │       ^^^^^^^^",
        "  │ ValueError: no",
    ]
    assert list(wrap_lines([code, marks], 60)) == [code, marks]
    assert list(wrap_lines([code], 28)) == list(wrap_prose(code, 28))
    assert list(wrap_lines([code, "  │ ValueError"], 28)) == [*wrap_prose(code, 28), "  │ ValueError"]


@given(
    st.lists(st.text("ab  ,", min_size=1, max_size=9), min_size=1).map(" ".join).map(str.strip).filter(bool),
    st.integers(0, 9),
    st.integers(12, 40),
)
def test_each_mark_stays_below_its_character_and_no_row_is_blank(code: str, indent: int, width: int) -> None:
    margin = "  │ " + " " * indent
    marks = "".join("^" if character == "b" else " " for character in code).rstrip()
    rows = list(wrap_lines([margin + code, *([margin + marks] if marks else [])], width))
    marked = [
        character
        for above, below in pairwise(rows)
        if "^" in below
        for character, mark in zip_longest(above, below, fillvalue=" ")
        if mark == "^"
    ]

    assert marked == ["b"] * code.count("b")
    assert all(row.strip(" │") for row in rows)


def test_what_goes_to_a_pipe_stays_as_it_is() -> None:
    lines = ["  │ \tx = 1 ", "one\ttwo"]

    assert list(wrap_lines(lines, UNBOUNDED)) == lines
    assert list(wrap_prose("one\ttwo", UNBOUNDED - 2, "    ")) == ["one\ttwo"]


def test_messages_of_a_table_go_on_in_their_column_if_it_is_wide_enough() -> None:
    rows = [("1s", "the first replica has ended, and the others with it"), ("2s", "deleted")]

    assert wrapped_table(("AGE", "MESSAGE"), rows, 44) == [
        "AGE   MESSAGE",
        "1s    the first replica has ended, and the\n      others with it",
        "2s    deleted",
    ]


def test_messages_of_a_table_are_below_its_other_columns_on_a_narrow_terminal() -> None:
    rows = [("1s", "tfjob/plain", "the first replica has ended, and others"), ("2s", "tfjob/plain", "")]

    assert wrapped_table(("AGE", "ABOUT", "MESSAGE"), rows, 40) == [
        "AGE   ABOUT",
        "1s    tfjob/plain\n    the first replica has ended, and\n    others",
        "2s    tfjob/plain",
    ]
    assert wrapped_table(("AGE", "ABOUT", "MESSAGE"), rows, 80)[0] == "AGE   ABOUT         MESSAGE"


def test_a_line_is_clipped_by_what_its_characters_take_on_the_terminal() -> None:
    assert clipped("worker-0   step 3", 17) == "worker-0   step 3"
    assert clipped("worker-0   step 3", 16) == "worker-0   step…"
    assert clipped("訓練の損失", 10) == "訓練の損失"
    assert clipped("訓練の損失", 9) == "訓練の損…"
    assert clipped("訓練の損失" * 99, UNBOUNDED) == "訓練の損失" * 99
