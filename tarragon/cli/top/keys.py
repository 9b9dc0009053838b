"""What a terminal sends when somebody presses a key, as the name of the key."""

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
_WHOLE = re.compile(r"\x1b(?:\[[0-9;?<]*[@-~]|O[A-Za-z])")
_BEGUN = re.compile(r"\x1b(?:\[[0-9;?<]*|O)?")


class Keys:
    """Bytes in, names out: a character stands for itself. Over a slow line a sequence may come in pieces."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="ignore").decode
        self._rest = ""

    @property
    def is_in_doubt(self) -> bool:
        """Escape was pressed, or the rest of a sequence is still on its way."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        text, self._rest = self._rest + self._decode(data), ""
        names: list[str] = []
        while text:
            match = _WHOLE.match(text)
            if match is not None:
                names.append(_SEQUENCES.get("[" + match[0][2:] if match[0][1] == "O" else match[0][1:], ""))
                text = text[match.end() :]
            elif _BEGUN.fullmatch(text):
                self._rest, text = text, ""
            else:
                names.append(_named(text[0]))
                text = text[1:]
        return [name for name in names if name]

    def flush(self) -> list[str]:
        """Nothing has followed for a while: it was the key Escape itself."""
        rest, self._rest = self._rest, ""
        return [ESCAPE] if rest else []


def _named(character: str) -> str:
    if character == "\x1b":
        return ESCAPE
    return _CONTROLS.get(character) or (character if character.isprintable() else "")
