from __future__ import annotations

import json

import pytest

from tarragon.job.log_rendering import LABEL_FIELDS, render_line, render_tail


def line(**facts: object) -> str:
    return json.dumps(dict.fromkeys(LABEL_FIELDS, "x") | {"message": "said", "severity": "INFO"} | facts)


def test_a_line_of_ours_says_its_message() -> None:
    assert render_line(line(message="two\nlines")) == "two\nlines"


def test_half_a_surrogate_pair_in_a_message_can_be_written_into_a_status() -> None:
    assert render_line(line(message="\ud800 boom")) == "? boom"
    assert render_line(line(message=7, other="\ud800")).encode()


@pytest.mark.parametrize("severity", ["WARNING", "ERROR", "CRITICAL"])
def test_what_is_grave_says_so(severity: str) -> None:
    assert render_line(line(severity=severity)) == f"{severity}: said"


@pytest.mark.parametrize("severity", ["DEBUG", "INFO", "DEFAULT"])
def test_what_is_not_does_not(severity: str) -> None:
    assert render_line(line(severity=severity)) == "said"


def test_a_traceback_is_shown_as_python_shows_it() -> None:
    message = "Traceback (most recent call last):\n  File\nValueError: x"

    assert render_line(line(severity="ERROR", message=message)) == message


def test_an_object_without_a_message_keeps_its_own_fields() -> None:
    assert render_line(line(message=7, severity="INFO", loss=0.5)) == '{"message": 7, "severity": "INFO", "loss": 0.5}'


@pytest.mark.parametrize(
    "text", ["", "plain", "{", '{"message": "mine"}', '{"replica_type": "mine", "message": "x"}', '["replica_type"]']
)
def test_what_is_not_ours_stays(text: str) -> None:
    assert render_line(text) == text


def test_a_severity_that_is_no_word_is_none() -> None:
    assert render_line(line(severity=["ERROR"])) == "said"


@pytest.mark.parametrize("depth", [900, 3000, 100_000])
def test_brackets_without_end_are_no_line_of_ours_and_no_harm(depth: int) -> None:
    text = '{"replica_type":' + "[" * depth

    assert render_line(text) == text
    assert render_tail(text) == text


def test_of_the_end_of_a_log_the_half_line_is_left_out() -> None:
    whole = line(message="first")

    assert render_tail("\n".join([whole[50:], line(message="last"), ""])) == "last\n"
    assert render_tail("plain\nwords }") == "plain\nwords }"
    assert render_tail(f"plain\n{line(message='last')}") == "plain\nlast"
