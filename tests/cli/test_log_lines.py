from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.base.escaping import STYLE_ESCAPE
from tarragon.cli.jobview.log_book import ContainerRun, LogPositions
from tarragon.cli.output.log_lines import LineSplitter, LogPosition, last_state, split_stamp, terminal_text
from tests.cli.scenes import worker

FIRST = "2026-11-21T12:00:00.1Z first"
SECOND = "2026-11-21T12:00:00.10000001Z second"
RUN = ContainerRun(worker(0), "uid", "tensorflow", 0)


def test_a_line_that_came_in_pieces_is_put_together() -> None:
    lines = LineSplitter()

    assert [lines.feed(chunk) for chunk in (b"lo", b"ss=0.1\nlo", b"ss=0.0")] == [[], ["loss=0.1"], []]
    assert lines.finish() == ["loss=0.0"]


@given(st.lists(st.text(alphabet="ab é\r", max_size=5), max_size=8), st.randoms(use_true_random=False))
def test_however_a_stream_is_cut_its_lines_are_the_same(texts: list[str], dice: random.Random) -> None:
    data = "".join(f"{text}\n" for text in texts).encode()
    cuts = sorted({0, len(data), *(dice.randint(0, len(data)) for _ in range(5))})
    lines = LineSplitter()

    found = [line for start, end in itertools.pairwise(cuts) for line in lines.feed(data[start:end])]

    assert [*found, *lines.finish()] == texts


def test_a_line_without_end_is_cut_before_it_fills_the_memory() -> None:
    lines = LineSplitter()

    assert len(lines.feed(b"x" * (1 << 20))) == 0
    assert len(lines.feed(b"x")) == 1


def test_bytes_that_are_no_text_are_no_error() -> None:
    assert LineSplitter().feed(b"\xff\xfe!\n") == ["��!"]


def test_moments_compare_as_times_whatever_zeros_were_left_out() -> None:
    assert split_stamp(FIRST)[0] < split_stamp(SECOND)[0]
    assert split_stamp(FIRST)[1] == "first"


def test_a_line_without_a_moment_is_left_as_it_is() -> None:
    assert split_stamp("Epoch 1/5") == (("", ""), "Epoch 1/5")


def test_a_log_that_is_read_again_repeats_nothing_and_loses_nothing() -> None:
    book = LogPositions()
    book.start(RUN)
    book.new_lines(RUN, [FIRST, SECOND, SECOND])
    book.start(RUN)

    fresh = book.new_lines(RUN, [FIRST, SECOND, SECOND, SECOND, "2026-11-21T12:00:01Z third"])

    assert [text for _, text in fresh] == ["second", "third"]


def test_a_restarted_container_that_answers_for_the_run_before_is_not_told_twice() -> None:
    book = LogPositions()
    book.start(RUN)
    book.new_lines(RUN, [SECOND])
    after_restart = ContainerRun(worker(0), "uid", "tensorflow", 1)
    book.start(after_restart)

    assert book.new_lines(after_restart, [SECOND]) == []


def test_two_lines_of_one_moment_are_two_lines() -> None:
    position = LogPosition()

    assert [position.is_new(("t", "1")), position.is_new(("t", "1"))] == [True, True]


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("plain", "plain"),
        (" 1/10 [>...]\r10/10 [====]", "10/10 [====]"),
        ("10/10 [====]\r", "10/10 [====]"),
        ("\x1b[2J\x1b[Hgotcha", "gotcha"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m\x1b[0m"),
        ("bell\x07", "bell"),
        ("10/10\r\x1b[K", "10/10"),
        ("a\x1cb\x9b2Jc", "abc"),
        ("\x1b]52;c;cHduCg==\x1b\\text", "text"),
        ("\x1bP1$r\x1b\\te\x9dtitle\x9cxt", "text"),
        ("\x1b]2;never ends", "]2;never ends"),
        ("\x1b(B\x1b7text\x1b[38:5:1m", "text"),
        ("\x1b[3\x071m\x1b\x1b[2J[31m", "[31m[31m"),
    ],
)
def test_what_a_program_prints_cannot_move_the_cursor(line: str, seen: str) -> None:
    assert terminal_text(line, colors=True).replace(STYLE_ESCAPE, "\x1b") == seen


@pytest.mark.parametrize(
    ("line", "last"),
    [
        ("1/3 [=>..]\x08\x08\x08\x08\x08\x082/3 [==>.]\x08\x08\x08\x08\x08\x083/3 [====]", "3/3 [====]"),
        (" 50%|##  |\r100%|####|\r", "100%|####|"),
        ("\x1b[31mred\x1b[0m and a\x08b", "\x1b[31mred\x1b[0m and a\x08b"),
        ("\r\r", ""),
    ],
)
def test_of_a_bar_the_last_state_is_left(line: str, last: str) -> None:
    assert last_state(line) == last


def test_without_colors_there_are_none() -> None:
    assert terminal_text("\x1b[31mred\x1b[0m", colors=False) == "red"


def test_a_life_that_was_overtaken_by_the_next_one_is_told_late_and_once() -> None:
    book = LogPositions()
    first_life = ["2026-01-01T10:00:00Z first"]
    book.new_lines(RUN, ["2026-01-01T10:00:01Z second", "2026-01-01T10:00:02Z third"])

    late = book.missed_lines(RUN, first_life)
    book.start(RUN)

    assert late == [("2026-01-01T10:00:00Z", "first")]
    assert book.new_lines(RUN, first_life) == []
    assert book.missed_lines(RUN, ["2026-01-01T10:00:01Z second", "2026-01-01T10:00:02Z third"]) == []


def test_where_nothing_was_told_nothing_was_overtaken() -> None:
    assert LogPositions().missed_lines(RUN, ["2026-01-01T10:00:00Z first"]) == []
