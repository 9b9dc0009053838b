"""Expands `$(NAME)` references in commands, arguments and variables, by the rules of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace each `$(NAME)` by the variable's value; unknown names stay as they are; `$$` is an escaped `$`.

    Inserted values are not expanded again.
    """
    parts: list[str] = []
    position = 0
    while (sign := text.find("$", position)) >= 0 and sign + 1 < len(text):
        parts.append(text[position:sign])
        value, position = _reference(text, sign, variables)
        parts.append(value)
    return "".join([*parts, text[position:]])


def _reference(text: str, sign: int, variables: Mapping[str, str]) -> tuple[str, int]:
    """The replacement of the `$` at position `sign`, and the position after it."""
    next_character = text[sign + 1]
    if next_character == "$":
        return "$", sign + 2
    end = text.find(")", sign + 2) if next_character == "(" else -1
    if end < 0:
        return "$" + next_character, sign + 2
    name = text[sign + 2 : end]
    return variables.get(name, f"$({name})"), end + 1
