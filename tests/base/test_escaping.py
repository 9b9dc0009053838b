from __future__ import annotations

import io
import json
import os
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.base.escaping import STYLE_ESCAPE, escaped, escaped_line, escaping_stream, write_verbatim
from tests.cli.tty import Tty

ANY_TEXT = st.text(st.characters(codec=None))
"""Lone surrogates are among it, as JSON and file names have them."""
INVISIBLE = {*"\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}


def written(text: str) -> str:
    stream = io.StringIO()
    escaping_stream(stream).write(text)
    return stream.getvalue()


def is_harmful(character: str) -> bool:
    return character not in "\n\t" and (unicodedata.category(character) in {"Cc", "Cs"} or character in INVISIBLE)


@given(ANY_TEXT)
def test_no_text_writes_a_control_character(text: str) -> None:
    assert not any(map(is_harmful, written(text)))
    written(text).encode()


@given(ANY_TEXT)
def test_a_line_stays_one(text: str) -> None:
    assert len(escaped_line(text).splitlines()) <= 1
    assert escaped_line(text) == escaped_line(escaped_line(text))


@given(ANY_TEXT)
def test_a_json_text_stays_the_same_text(text: str) -> None:
    assert json.loads(written(json.dumps(text, ensure_ascii=False))) == json.loads(json.dumps(text))


@pytest.mark.parametrize("text", ["Überraschung", "日本語", "👩‍👩‍👧", "مرحبا", "a\tb\n", "C:\\u"])
def test_text_of_all_languages_stays_as_it_is(text: str) -> None:
    assert escaped(text) == text


def test_an_escape_sequence_is_shown_and_a_style_of_our_own_is_put_in() -> None:
    assert written(f"{STYLE_ESCAPE}[31m\x1b]0;title\x07{STYLE_ESCAPE}[0m") == "\x1b[31m\\u001b]0;title\\u0007\x1b[0m"


def test_what_programs_read_is_written_as_it_is() -> None:
    stream = io.StringIO()
    write_verbatim(escaping_stream(stream), f"{STYLE_ESCAPE}[31m\x1b]0;title\x07")

    assert stream.getvalue() == "\x1b[31m\x1b]0;title\x07"


LOGGING = """
import sys
import structlog
from tarragon.base import logging

logging.configure(sys.argv[1], "info", sys.stderr)
try:
    raise ValueError("\\x1b[99m in an error\\x7f")
except ValueError:
    structlog.get_logger().exception("\\x1b[99m in an event\\ud800", job="\\x1b[99m\\u202e in a value\\x9b")
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_log_has_no_escape_sequences_but_its_own_colours(tmp_path: Path, form: str) -> None:
    with Tty([sys.executable, "-c", LOGGING, form], tmp_path, os.environ) as tty:
        assert tty.ended() == 0

    said = tty.raw.decode().replace("\r\n", "\n")
    assert "\x1b[99m" not in said
    assert len(re.findall(r"\\(?:u00|x)1b\[99m", said)) == 3
    assert not any(is_harmful(character) for character in said.replace("\x1b", ""))
    assert ("\x1b[" in said) is (form == "text")
    if form == "json":
        assert json.loads(said)["job"] == "\x1b[99m\u202e in a value\x9b"
