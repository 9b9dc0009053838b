"""A screenshot of a program that does not end by itself: python -m tools.clip.still --output FILE -- tarragon top."""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tools.clip.record import Output, Size
from tools.clip.screen import frames
from tools.clip.svg import draw

_READ = 65536
_KEY_SECONDS = 1.0
"""The time that the program has to react to a key."""


def main() -> int:
    options = _options()
    size = Size(options.columns, options.rows)
    data = b"".join(_output(options.command, size, options.seconds, options.keys))
    picture = list(frames([Output(0.0, data)], size, shortest=0.0))[-1]
    options.output.write_text(draw([replace(picture, seconds=1.0)], size, options.title), encoding="utf-8")
    print(f"still: {options.output}")
    return 0


def _output(command: Sequence[str], size: Size, seconds: float, keys: str) -> Iterator[bytes]:
    """The output of the command until it is killed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        yield from _read_for(ours, seconds)
        for key in keys:
            os.write(ours, key.encode())
            yield from _read_for(ours, _KEY_SECONDS)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _read_for(terminal: int, seconds: float) -> Iterator[bytes]:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            yield os.read(terminal, _READ)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools.clip.still", description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--title", default="Tarragon's page of jobs, replicas and nodes")
    parser.add_argument("--keys", default="", help="typed one after the other when the page is complete")
    parser.add_argument("--seconds", type=float, default=4.0, help="time until the page is complete")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
