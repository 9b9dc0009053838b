"""Record a command as an animated SVG: python -m tools.clip --output docs/clip.svg -- tarragon run ..."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from tools.clip.record import Output, Size, record
from tools.clip.screen import frames, limit_frame_times, type_command
from tools.clip.svg import draw

_FRAME_SECONDS = (0.08, 0.12, 0.18, 0.27, 0.4, 0.6)  # tried in this order until the file is small enough


def main() -> int:
    options = _options()
    size = Size(options.columns, options.rows)
    recording = record(options.command, size, options.timeout)
    if recording.exit_code != 0:
        print(f"clip: the command failed with exit code {recording.exit_code}; {options.output} was not changed")
        return 1
    shown = options.typed or " ".join(options.command)
    outputs = _after(type_command(shown, size, seconds_a_key=0.07), recording.outputs)
    image = _small_enough(outputs, size, options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(image, encoding="utf-8")
    print(f"clip: {options.output}, {len(image.encode()) / 1000:.0f} kB")
    return 0


def _after(before: list[Output], outputs: tuple[Output, ...]) -> list[Output]:
    start = before[-1].at
    return [*before, *(replace(output, at=start + output.at) for output in outputs)]


def _small_enough(outputs: list[Output], size: Size, options: argparse.Namespace) -> str:
    image = ""
    for shortest in _FRAME_SECONDS:
        pictures = limit_frame_times(list(frames(outputs, size, shortest)), options.idle, at_the_end=5.0)
        image = draw(pictures, size, options.title)
        if len(image.encode()) <= options.limit * 1000:
            break
    return image


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools.clip", description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--title", default="A terminal in which Tarragon trains a distributed TensorFlow job")
    parser.add_argument("--typed", help="the command line to show, by default the command itself")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--rows", type=int, default=26)
    parser.add_argument("--idle", type=float, default=0.9, help="the longest time that a frame is shown, in seconds")
    parser.add_argument("--limit", type=int, default=200, help="maximal size in kB; larger files get fewer frames")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
