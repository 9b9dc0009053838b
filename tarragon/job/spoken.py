"""What a line of a JSON log says to people: its message. Lines that are not of ours stay as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping

LABELS = "logging.googleapis.com/labels"
MARK = '"replica_type"'
WHOSE = frozenset({"job", "namespace", "pod", "replica_type", "replica_index", "runtime_id", "uid", LABELS})
TRACEBACK = "Traceback (most recent call last)"
LOUD = frozenset({"WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY"})


def spoken(line: str) -> str:
    """May be several lines: a traceback is one message. Warnings and errors say that they are; a traceback need not."""
    try:
        found = _read(line)
        # JSON may escape half a surrogate pair, which no status and no terminal takes.
        return line if found is None else _said(found).encode(errors="replace").decode()
    except (ValueError, RecursionError):  # A program may write anything, brackets without end too.
        return line


def last_words(text: str) -> str:
    """The end of a log. Its first line may be the end of one, and then says nothing."""
    lines = text.split("\n")
    said = [spoken(line) for line in lines]
    if said == lines:
        return text
    return "\n".join(said[1:] if said[0] == lines[0] and lines[0].endswith("}") else said)


def _said(found: Mapping[str, object]) -> str:
    message = found.get("message")
    if not isinstance(message, str):
        return json.dumps({name: value for name, value in found.items() if name not in WHOSE}, ensure_ascii=False)
    severity = found.get("severity")
    is_loud = isinstance(severity, str) and severity in LOUD
    return f"{severity}: {message}" if is_loud and not message.startswith(TRACEBACK) else message


def _read(line: str) -> Mapping[str, object] | None:
    if not line.startswith("{") or MARK not in line:
        return None
    found = json.loads(line)
    return found if found.keys() >= WHOSE else None
