"""The progress of a job as rows of a terminal: one row per replica if there is room, else counts by type and state."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tarragon.base.escaping import escaped_line
from tarragon.cli.follow.changes import replica_text, stall_reason
from tarragon.cli.jobview.progress import FAILED, RESTARTING, Progress, ReplicaProgress
from tarragon.cli.output.style import REPLICA_TYPES, STATES, Paint
from tarragon.cli.output.words import count, duration_text
from tarragon.job.progress import progress_text

Row = Sequence[tuple[str, str]]
"""Texts with their colours, from left to right."""

_MOST_TROUBLED = 5
"""Failed and restarting replicas that get rows of their own when the others are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressFrame:
    """The terminal's size and the time. `tail`: the last log lines, if the logs are not on this screen."""

    width: int
    height: int
    now: dt.datetime
    tail: Sequence[str] = ()


def progress_rows(progress: Progress, frame: ProgressFrame, paint: Paint) -> list[str]:
    """Returns rows for at most half of the screen. No row wraps; colours only repeat the states' names."""
    room = max(3, frame.height // 2 - 1)
    members = progress.replicas
    body = [_one(member) for member in members] if len(members) < room else list(_many(members))
    rows = [_head(progress, frame.now), *body[:room]]
    if stall_reason(progress):
        rows.append([("  ", ""), (stall_reason(progress), "yellow")])
    rows += [[("  ", ""), (line, "dim")] for line in frame.tail]
    return [_painted(row, frame.width - 1, paint) for row in rows]


def _head(progress: Progress, now: dt.datetime) -> Row:
    running = sum(member.state == "Running" for member in progress.replicas)
    return [
        (progress.key.name, "bold"),
        ("  ", ""),
        (progress.state, STATES.get(progress.state, "")),
        (f"  {duration_text(progress.elapsed(now))}  ", ""),
        (f"{running} of {count(len(progress.replicas), 'replica')} running", ""),
        (f"  {text}" if (text := progress_text(progress.training, now)) else "", ""),
    ]


def _one(member: ReplicaProgress) -> Row:
    return [
        ("  ", ""),
        (f"{member.name:<14}", REPLICA_TYPES.get(member.replica.type.lower(), "")),
        ("  ", ""),
        (replica_text(member), STATES.get(member.state, "")),
    ]


def _many(members: Sequence[ReplicaProgress]) -> Iterator[Row]:
    """Yields a row for each replica type, then the failed and restarting replicas."""
    by_type: dict[str, list[ReplicaProgress]] = {}
    for member in members:
        by_type.setdefault(member.replica.type.lower(), []).append(member)
    for word, group in by_type.items():
        row = [("  ", ""), (f"{word:<10}", REPLICA_TYPES.get(word, "")), (f"{len(group):>5}  ", "")]
        for state, number in sorted(Counter(member.state for member in group).items(), key=lambda item: -item[1]):
            row += [(f"  {number} ", ""), (state, STATES.get(state, ""))]
        yield row
    troubled = [member for member in members if member.state in {FAILED, RESTARTING}]
    yield from (_one(member) for member in troubled[:_MOST_TROUBLED])
    if len(troubled) > _MOST_TROUBLED:
        yield [("  ", ""), (f"and {len(troubled) - _MOST_TROUBLED} more failed or restarting", "red")]


def _painted(row: Row, width: int, paint: Paint) -> str:
    """Paints a row and cuts it by its width on the screen: many characters take two columns."""
    from rich.cells import cell_len, set_cell_size

    result: list[str] = []
    left = width
    for piece, color in row:
        text = escaped_line(piece)
        needed = cell_len(text)
        result.append(paint(text if needed <= left else set_cell_size(text, left), color))
        left -= needed
        if left <= 0:
            break
    return "".join(result).rstrip()
