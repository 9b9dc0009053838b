"""Escapes control characters in text that goes to a terminal, while Tarragon's own styles pass.

Names, messages and file names come from others. On a terminal, an escape sequence in one of them could set the window
title, write to the clipboard, or hide or overwrite output; a bidirectional override could reverse it. `EscapingStream`
therefore passes no control character. Tarragon's own styles begin with `STYLE_ESCAPE`, a marker that only this process
knows, and the stream replaces it with the control character.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TextIO, cast

STYLE_ESCAPE = f"\ufdd0{os.urandom(8).hex()}"
"""Begins one of Tarragon's own escape sequences. It is random for each process, so that no other text contains it."""

_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but the tab and the line feed, DEL, C1
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the direction of text
    r"\u2028\u2029"  # separators of lines and paragraphs
    r"\ud800-\udfff]"  # surrogates: half characters, which no encoding can write
)
_IN_LINE = str.maketrans({"\n": "\\n", "\t": " "})


def escaped(text: str) -> str:
    r"""The text with control characters, except `\n` and `\t`, as in `\u001b`, which JSON and YAML read as the same."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def escaped_line(text: str) -> str:
    r"""The escaped text on one line, for table cells: a line feed becomes `\n`, a tab becomes a space."""
    return escaped(text).translate(_IN_LINE)


def has_controls(text: str) -> bool:
    return _CONTROLS.search(text) is not None


class EscapingStream:
    """A text stream that escapes what is written to it. All other methods are those of the wrapped stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self.write_verbatim(escaped(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def write_verbatim(self, text: str) -> int:
        """Write text unescaped, for programs that read it. Tarragon's own styles still apply."""
        return self._stream.write(text.replace(STYLE_ESCAPE, "\x1b"))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def escaping_stream(stream: TextIO) -> TextIO:
    """The stream wrapped in an EscapingStream, unless it is one already."""
    return stream if isinstance(stream, EscapingStream) else cast("TextIO", EscapingStream(stream))


def write_verbatim(stream: TextIO, text: str) -> None:
    """Write text unescaped to a pipe or a file. Never use it for a terminal."""
    if isinstance(stream, EscapingStream):
        stream.write_verbatim(text)
    else:
        stream.write(text)
