"""`$(NAME)` in commands, arguments and variables, by the rules of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping


def expand(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` becomes the variable's value; what is not known stays as it is; `$$` becomes `$` and expands nothing.

    A value is put in as it is, without being expanded again.
    """
    parts: list[str] = []
    position = 0
    while (sign := text.find("$", position)) >= 0 and sign + 1 < len(text):
        parts.append(text[position:sign])
        told, position = _reference(text, sign, variables)
        parts.append(told)
    return "".join([*parts, text[position:]])


def _reference(text: str, sign: int, variables: Mapping[str, str]) -> tuple[str, int]:
    """What the `$` at this place means, and where to read on."""
    follower = text[sign + 1]
    if follower == "$":
        return "$", sign + 2
    end = text.find(")", sign + 2) if follower == "(" else -1
    if end < 0:
        return "$" + follower, sign + 2
    name = text[sign + 2 : end]
    return variables.get(name, f"$({name})"), end + 1
