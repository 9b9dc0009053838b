from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET

import pytest

from tools.clip.record import Output, Size, record
from tools.clip.screen import Frame, Line, frames, limit_frame_times, type_command
from tools.clip.svg import draw

SIZE = Size(20, 3)
SVG = "{http://www.w3.org/2000/svg}"


def text_of(line: Line) -> str:
    return "".join(run.text for run in line)


def shown(*outputs: Output, shortest: float = 0.1) -> list[Frame]:
    return list(frames(outputs, SIZE, shortest))


def test_a_command_is_recorded_in_a_terminal_with_its_exit_code() -> None:
    script = "import sys, os; print(sys.stdout.isatty(), os.get_terminal_size().columns); sys.exit(3)"

    recording = record([sys.executable, "-c", script], SIZE, timeout=30)

    assert b"".join(output.data for output in recording.outputs) == b"True 20\r\n"
    assert recording.exit_code == 3


def test_a_command_that_exceeds_the_timeout_is_killed() -> None:
    with pytest.raises(TimeoutError, match=r"did not end within 0\.2 s"):
        record([sys.executable, "-c", "input()"], SIZE, timeout=0.2)


def test_each_change_is_a_frame_and_output_shortly_after_it_belongs_to_it() -> None:
    pictures = shown(Output(0.0, b"one"), Output(0.01, b" two"), Output(2.0, b"\r\x1b[2Kthree"))

    assert [text_of(picture.lines[0]) for picture in pictures] == ["one two", "three"]
    assert [picture.seconds for picture in pictures] == [2.0, 0.0]


def test_a_character_split_between_two_reads_is_one_character() -> None:
    first, second = b"\xc3", b"\xa9"

    pictures = shown(Output(0.0, first), Output(0.01, second))

    assert text_of(pictures[-1].lines[0]) == "é"


def test_colours_and_faint_text_are_kept() -> None:
    (picture,) = shown(Output(0.0, b"\x1b[1;31mred\x1b[0m \x1b[2mfaint\x1b[22m plain"))

    styles = [(run.text, run.style.foreground, run.style.bold, run.style.faint) for run in picture.lines[0]]

    assert styles == [
        ("red", "red", True, False),
        ("faint", "default", False, True),
        ("plain", "default", False, False),
    ]


def test_only_the_last_frame_is_shown_longer_than_the_limit() -> None:
    pictures = shown(Output(0.0, b"a"), Output(60.0, b"b"), Output(61.0, b"c"))

    shortened = limit_frame_times(pictures, longest=0.5, at_the_end=4.0)

    assert [picture.seconds for picture in shortened] == [0.5, 0.5, 4.0]


def test_a_prompt_is_typed_key_by_key() -> None:
    outputs = type_command("make", SIZE, seconds_a_key=0.1)

    assert [text_of(picture.lines[0]) for picture in shown(*outputs, shortest=0.05)] == [
        "$",
        "$m",
        "$ma",
        "$mak",
        "$make",
    ]


def test_the_animation_shows_every_frame_and_only_the_last_for_reduced_motion() -> None:
    pictures = limit_frame_times(shown(Output(0.0, b"<a> & b"), Output(1.0, b"\r\x1b[2Kdone")), 1.0, at_the_end=3.0)

    image = draw(pictures, SIZE, "a title")

    root = ET.fromstring(image)  # noqa: S314 our own XML
    sheet = root.findtext(f"{SVG}style") or ""
    assert [text.text for text in root.iter(f"{SVG}text")] == ["<a> & b", "done"]
    assert re.findall(r"([\d.]+)%\{transform:translateY\((-?\d+)px\)", sheet) == [("0.000", "0"), ("25.000", "-54")]
    assert "prefers-reduced-motion:reduce){.strip{animation:none;transform:translateY(-54px)}" in sheet
    assert "prefers-color-scheme:dark" in sheet


def test_a_line_of_many_frames_is_drawn_once() -> None:
    pictures = shown(Output(0.0, b"stays\r\n0"), *(Output(float(n), b"\r%d" % n) for n in range(1, 10)))

    image = draw(pictures, SIZE, "a title")

    assert image.count(">stays<") == 1
    assert image.count('href="#l0"') == len(pictures) == 10
