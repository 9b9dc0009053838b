"""One picture of a page that does not end by itself: python -m tools.clip.still --output FILE -- tarragon top."""

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
_PAUSE = 1.0
"""Seconds that a key may take until the page shows what it has done."""


def main() -> int:
    options = _options()
    size = Size(options.columns, options.rows)
    data = b"".join(_seen(options.command, size, options.seconds, options.keys))
    picture = list(frames([Output(0.0, data)], size, shortest=0.0))[-1]
    options.output.write_text(draw([replace(picture, seconds=1.0)], size, options.title), encoding="utf-8")
    print(f"still: {options.output}")
    return 0


def _seen(command: Sequence[str], size: Size, seconds: float, keys: str) -> Iterator[bytes]:
    """What it has drawn until it is ended."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        yield from _until(ours, seconds)
        for key in keys:
            os.write(ours, key.encode())
            yield from _until(ours, _PAUSE)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _until(terminal: int, seconds: float) -> Iterator[bytes]:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            yield os.read(terminal, _READ)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools.clip.still", description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--title", default="Tarragon's page of jobs, replicas and nodes")
    parser.add_argument("--keys", default="", help="typed one after the other when the page is there")
    parser.add_argument("--seconds", type=float, default=4.0, help="until the page is there")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
