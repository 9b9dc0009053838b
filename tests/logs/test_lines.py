"""Conversion of a program's output lines to JSON."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from typing import Any

import pytest

from tests.logs.programs import FIELDS, LABELS, SOURCE, Container, ended

LONGEST = 16 * 1024


def logged_lines(container: Container, data: bytes) -> list[dict[str, Any]]:
    result = container.run("cat", stdin=data)
    assert (result.code, result.err) == (0, b"")
    return result.lines


def one(container: Container, line: str) -> dict[str, Any]:
    (found,) = logged_lines(container, line.encode() + b"\n")
    return found


def test_every_line_names_its_replica(any_container: Container) -> None:
    result = any_container.run("sh", "-c", "echo out; echo hé >&2")

    out, err = result.lines
    assert {name: out[name] for name in FIELDS} == FIELDS
    assert out[LABELS] == {name: str(value) for name, value in FIELDS.items()}
    assert (out["message"], out["severity"]) == ("out", "INFO")
    assert (err["message"], err["severity"]) == ("hé", "DEFAULT")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", out["time"])
    assert (result.out.count(b"\n"), result.err.count(b"\n")) == (1, 1)


@pytest.mark.parametrize(
    ("line", "severity", "message", "place"),
    [
        ("2026-11-21 10:00:00.123456: I tensorflow/port.cc:153] a b", "INFO", "a b", "tensorflow/port.cc:153"),
        ("2026-11-21 10:00:00.123456: W tensorflow/x.cc:1] a", "WARNING", "a", "tensorflow/x.cc:1"),
        ("2026-11-21 10:00:00.123456: E external/xla/y.cc:2] ", "ERROR", "", "external/xla/y.cc:2"),
        ("2026-11-21 10:00:00.123456: F tensorflow/x.cc:1] Check", "CRITICAL", "Check", "tensorflow/x.cc:1"),
        ("I tensorflow/core/dso_loader.cc:108] of 2016", "INFO", "of 2016", "tensorflow/core/dso_loader.cc:108"),
        ("I1121 10:00:00.000000 140123456 file.cc:12] absl", "INFO", "absl", "file.cc:12"),
        ("W1121 10:00:00.000000   4711 train.py:7] absl: py", "WARNING", "absl: py", "train.py:7"),
        ("E0000 00:00:1763719200.123456   1234 cuda_dnn.cc:8310] early", "ERROR", "early", "cuda_dnn.cc:8310"),
        ("WARNING:tensorflow:From x", "WARNING", "From x", None),
        ("WARNING: All log messages before", "WARNING", "All log messages before", None),
        ("INFO", "INFO", "INFO", None),
        ("I think so", "INFO", "I think so", None),
        ("Epoch 1/10", "INFO", "Epoch 1/10", None),
    ],
)  # fmt: skip
def test_severity_and_source_location_are_parsed_from_the_prefix(
    container: Container, line: str, severity: str, message: str, place: str | None
) -> None:
    found = one(container, line)

    source = found.get(SOURCE)
    assert (found["severity"], found["message"]) == (severity, message)
    assert (f"{source['file']}:{source['line']}" if source else None) == place


def test_the_name_of_a_logger_is_kept(container: Container) -> None:
    assert one(container, "ERROR:absl:x")["logger"] == "absl"


def test_a_json_line_gets_our_fields_and_keeps_its_own(container: Container) -> None:
    found = one(container, '{"level": "warn", "msg": "slow", "loss": 0.5, "job": "mine", "time": "then"}')

    assert (found["loss"], found["severity"], found["message"], found["time"]) == (0.5, "WARNING", "slow", "then")
    assert (found["job"], found["program"]) == ("dist", {"job": "mine"})
    assert found[LABELS]["replica_type"] == "ps"


def test_labels_of_a_json_line_are_merged_with_ours(container: Container) -> None:
    found = one(container, json.dumps({"message": "x", LABELS: {"experiment": "7"}}))

    assert found[LABELS] == {"experiment": "7"} | {name: str(value) for name, value in FIELDS.items()}


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "{'a': 1}",
        '{"loss": NaN}',
        '{"a": Infinity}',
        "[1]",
        '"x"',
        "{" * 5000,
        '{"a":' * 3000,
        '{"a": 1} and more',
    ],
    ids=lambda line: line[:12],
)
def test_a_line_that_is_not_a_json_object_is_text(container: Container, line: str) -> None:
    assert one(container, line)["message"] == line


def test_empty_lines_are_logged_and_carriage_returns_are_removed(container: Container) -> None:
    assert [line["message"] for line in logged_lines(container, b"\na\r\n\r\n")] == ["", "a", ""]


def test_a_last_line_without_a_newline_is_not_lost(container: Container) -> None:
    assert [line["message"] for line in logged_lines(container, b"one\ntwo")] == ["one", "two"]


@pytest.mark.parametrize("letter", ["x", "é", "€", "🌿"])
def test_a_long_line_is_split_between_characters(any_container: Container, letter: str) -> None:
    text = "." + letter * (3 * LONGEST // len(letter.encode()))

    result = any_container.run("cat", stdin=text.encode() + b"\nnext\n")

    *pieces, last = result.messages
    assert "".join(pieces) == text
    assert last == "next"
    assert {len(piece.encode()) for piece in pieces[:-1]} <= {LONGEST - lost for lost in range(4)}


def test_any_bytes_give_valid_json(any_container: Container) -> None:
    data = bytes(range(256)) * 300

    result = any_container.run("cat", stdin=data)

    assert result.code == 0
    assert "".join(result.messages).count("�") > 300
    assert result.out.decode()  # everything is UTF-8
    assert all(line["replica_type"] == "ps" for line in result.lines)


def test_a_lone_surrogate_in_json_is_harmless(any_container: Container) -> None:
    (found,) = any_container.run("cat", stdin=rb'{"message": "\ud800 x"}' + b"\n").lines

    assert found["message"].endswith(" x")


def test_a_million_lines_are_logged_in_order(container: Container) -> None:
    process = container.start("seq", "1000000", bufsize=-1)
    assert process.stdout is not None
    digest, number = hashlib.sha256(), 0
    for line in process.stdout:
        found = json.loads(line)
        digest.update(found["message"].encode() + b"\n")
        number += 1

    assert number == 1_000_000
    assert digest.hexdigest() == hashlib.sha256(b"".join(b"%d\n" % n for n in range(1, 1_000_001))).hexdigest()
    assert ended(process).code == 0


def test_a_program_whose_log_is_not_read_blocks_and_loses_nothing(any_container: Container) -> None:
    """The output is larger than all pipe buffers."""
    process = any_container.start("sh", "-c", "seq 100000; echo done >&2")
    assert process.stderr is not None
    assert process.stdout is not None
    first = process.stdout.readline()

    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    result = ended(process)

    assert json.loads(first)["message"] == "1"
    assert result.messages == [*map(str, range(2, 100_001)), "done"]
