"""Decodes terminal input into the names of keys."""

from __future__ import annotations

import codecs
import re
from types import MappingProxyType

ESCAPE = "esc"
_SEQUENCES = MappingProxyType(
    {
        "[A": "up",
        "[B": "down",
        "[C": "right",
        "[D": "left",
        "[H": "home",
        "[F": "end",
        "[1~": "home",
        "[7~": "home",
        "[4~": "end",
        "[8~": "end",
        "[3~": "delete",
        "[5~": "pageup",
        "[6~": "pagedown",
        "[Z": "backtab",
    }
)
_CONTROLS = MappingProxyType(
    {
        "\r": "enter",
        "\n": "enter",
        "\t": "tab",
        "\x7f": "backspace",
        "\x08": "backspace",
        "\x02": "pageup",
        "\x04": "pagedown",
        "\x06": "pagedown",
        "\x0c": "redraw",
        "\x15": "pageup",
    }
)
_COMPLETE_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?<]*[@-~]|O[A-Za-z])")
_PARTIAL_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?<]*|O)?")


class KeyDecoder:
    """Decodes bytes into key names; a character is its own name. An escape sequence may arrive in pieces."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="ignore").decode
        self._pending = ""

    @property
    def is_incomplete(self) -> bool:
        """Whether Escape was pressed, or an escape sequence is incomplete."""
        return bool(self._pending)

    def feed(self, data: bytes) -> list[str]:
        text, self._pending = self._pending + self._decode(data), ""
        names: list[str] = []
        while text:
            match = _COMPLETE_SEQUENCE.match(text)
            if match is not None:
                names.append(_SEQUENCES.get("[" + match[0][2:] if match[0][1] == "O" else match[0][1:], ""))
                text = text[match.end() :]
            elif _PARTIAL_SEQUENCE.fullmatch(text):
                self._pending, text = text, ""
            else:
                names.append(_key_name(text[0]))
                text = text[1:]
        return [name for name in names if name]

    def flush(self) -> list[str]:
        """Return the pending Escape as a key, because no sequence followed it."""
        pending, self._pending = self._pending, ""
        return [ESCAPE] if pending else []


def _key_name(character: str) -> str:
    if character == "\x1b":
        return ESCAPE
    return _CONTROLS.get(character) or (character if character.isprintable() else "")
