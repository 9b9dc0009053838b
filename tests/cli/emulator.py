"""A terminal emulator on a pty: what a user would see of whatever is written to it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios

import pyte

from tarragon.base.escaping import escaping_stream

SIZES = [(80, 24), (200, 50)]


class Emulator:
    """A terminal as a user sees it: what is written to `stream` moves its cursor and fills its cells."""

    def __init__(self, columns: int, lines: int) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._parser = pyte.ByteStream(self.screen)
        # As a pty does: a line feed also goes back to the first column.
        self.screen.set_mode(pyte.modes.LNM)
        self._main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.stream = escaping_stream(os.fdopen(side, "w"))

    def rows(self) -> list[str]:
        """What can be read on it now, without empty rows below."""
        self.stream.flush()
        os.set_blocking(self._main, False)
        try:
            while data := os.read(self._main, 65536):
                self._parser.feed(data)
        except BlockingIOError:
            pass
        return "\n".join(row.rstrip() for row in self.screen.display).rstrip().split("\n")

    def wait(self) -> None:
        """Until something new is written, or somebody may have ended."""
        select.select([self._main], [], [], 0.2)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.stream.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def close(self) -> None:
        self.stream.close()
        os.close(self._main)
