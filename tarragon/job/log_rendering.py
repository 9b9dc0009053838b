"""Renders lines of Tarragon's JSON log format for humans. All other lines stay unchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping

LABELS = "logging.googleapis.com/labels"
JSON_MARKER = '"replica_type"'
LABEL_FIELDS = frozenset({"job", "namespace", "pod", "replica_type", "replica_index", "runtime_id", "uid", LABELS})
TRACEBACK = "Traceback (most recent call last)"
PREFIXED_SEVERITIES = frozenset({"WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY"})


def render_line(line: str) -> str:
    """The text of a log line: its message, prefixed with the severity if that is a warning or worse.

    The result may have several lines. A traceback gets no prefix.
    """
    try:
        found = _read(line)
        # JSON may contain a lone surrogate, which neither a status nor a terminal accepts.
        return line if found is None else _text(found).encode(errors="replace").decode()
    except (ValueError, RecursionError):  # A program may write anything, even endlessly nested brackets.
        return line


def render_tail(text: str) -> str:
    """Render the tail of a log. The first line is dropped if it is the truncated rest of a JSON line."""
    lines = text.split("\n")
    rendered = [render_line(line) for line in lines]
    if rendered == lines:
        return text
    return "\n".join(rendered[1:] if rendered[0] == lines[0] and lines[0].endswith("}") else rendered)


def _text(found: Mapping[str, object]) -> str:
    message = found.get("message")
    if not isinstance(message, str):
        return json.dumps(
            {name: value for name, value in found.items() if name not in LABEL_FIELDS}, ensure_ascii=False
        )
    severity = found.get("severity")
    is_loud = isinstance(severity, str) and severity in PREFIXED_SEVERITIES
    return f"{severity}: {message}" if is_loud and not message.startswith(TRACEBACK) else message


def _read(line: str) -> Mapping[str, object] | None:
    if not line.startswith("{") or JSON_MARKER not in line:
        return None
    found = json.loads(line)
    return found if found.keys() >= LABEL_FIELDS else None
