"""The line of a program's last output that says most."""

from __future__ import annotations

import re

_INVISIBLE = " \t\r\n\0"
"""What may follow the last line. Open MPI 5 ends a message with a NUL."""
_RULE = re.compile(r"^[-=*#_\s]{8,}$")


def telling_line(message: str) -> str:
    """The last line; of a message between two rules, as Open MPI prints its errors, the first one."""
    lines = [line.strip() for line in message.strip(_INVISIBLE).split("\n")]
    if not _RULE.match(lines[-1]):
        return lines[-1]
    start = max((number for number, line in enumerate(lines[:-1]) if _RULE.match(line)), default=-1)
    return next(filter(None, lines[start + 1 : -1]), "")
