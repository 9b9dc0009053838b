"""The one place where text meets a terminal: control characters in it become visible, styles of our own pass.

Names, messages and file names are written by others. On a terminal an escape sequence in one of them sets the title
of the window, writes to the clipboard, hides or overdraws what was printed; a bidirectional override reverses it.
`EscapingStream` therefore lets no control character through. A style is not written with the control character
itself but with `ESC`, which only this process knows; the stream puts the control character in its place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TextIO, cast

ESC = f"\ufdd0{os.urandom(8).hex()}"
"""Begins an escape sequence of our own. It is drawn anew in each process, so that no foreign text can contain it."""

_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but the tab and the line feed, DEL, C1
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the direction of text
    r"\u2028\u2029"  # separators of lines and paragraphs
    r"\ud800-\udfff]"  # surrogates: half characters, which no encoding can write
)
_IN_LINE = str.maketrans({"\n": "\\n", "\t": " "})


def escaped(text: str) -> str:
    r"""Each control character but `\n` and `\t` as `\u001b`: visible, and still the same text to JSON and YAML."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def escaped_line(text: str) -> str:
    r"""For a cell or a row, which a line feed would leave: it is shown as `\n`, a tab as a space."""
    return escaped(text).translate(_IN_LINE)


def has_controls(text: str) -> bool:
    return _CONTROLS.search(text) is not None


class EscapingStream:
    """A text stream that escapes what is written to it; all else is the stream's that it stands before."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self.verbatim(escaped(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def verbatim(self, text: str) -> int:
        """What programs read, as it is; our own styles are put in all the same."""
        return self._stream.write(text.replace(ESC, "\x1b"))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def escaping(stream: TextIO) -> TextIO:
    """The stream behind an EscapingStream."""
    return stream if isinstance(stream, EscapingStream) else cast("TextIO", EscapingStream(stream))


def write_verbatim(stream: TextIO, text: str) -> None:
    """To a pipe or a file, whose readers want the text as it is. Never to a terminal."""
    if isinstance(stream, EscapingStream):
        stream.verbatim(text)
    else:
        stream.write(text)
