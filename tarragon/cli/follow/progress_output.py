"""Telling a user how a job goes: rows that move on a terminal, or one line a change where nothing may move."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO

from tarragon.base.escaping import write_verbatim
from tarragon.cli.follow.changes import changes, is_displaced, standstill
from tarragon.cli.follow.view import Frame, view
from tarragon.cli.jobview.progress import PLACED_AGAIN, RUNNING, Progress
from tarragon.cli.output.log_lines import shown
from tarragon.cli.output.screen import Screen
from tarragon.cli.output.style import REPLICA_TYPES, painter
from tarragon.cli.output.terminal import Terminal, size
from tarragon.job.model import Replica

_TAIL = 5
"""Last lines of the logs that are shown below the replicas where the logs themselves go elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where things are told, and what the time is there."""

    out: TextIO
    err: TextIO
    terminal: Terminal
    now: Callable[[], dt.datetime]

    def said(self, text: str) -> None:
        """Logs, on stdout."""
        if self.terminal.shows_logs:
            self.out.write(text)
        else:
            write_verbatim(self.out, text)


class Teller(Protocol):
    """All are called from one thread; nothing is lost when `close` comes in the middle."""

    def progressed(self, progress: Progress) -> None: ...

    def said(self, replica: Replica, lines: Sequence[tuple[str, str]]) -> None: ...

    def note(self, text: str) -> None:
        """A line of our own, on stderr."""
        ...

    def tick(self) -> None:
        """Time has passed: draw what has gathered."""
        ...

    def close(self) -> None: ...


def teller(stage: Stage) -> Teller:
    """The right one for the terminal."""
    return Moving(stage) if stage.terminal.is_live else Plain(stage)


class Plain:
    """One line a change, with the time in front: for CI, pipes and files."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._before: Progress | None = None

    def progressed(self, progress: Progress) -> None:
        for line in changes(self._before, progress):
            self.note(line)
        self._before = progress

    def said(self, replica: Replica, lines: Sequence[tuple[str, str]]) -> None:
        self._stage.said(prefixed(replica, [text for _, text in lines], self._stage.terminal))
        self._stage.out.flush()

    def note(self, text: str) -> None:
        self._stage.err.write(f"{self._stage.now():%H:%M:%S}Z  {text}\n")
        self._stage.err.flush()

    def tick(self) -> None:
        pass

    def close(self) -> None:
        pass


class Moving:
    """Rows at the bottom of the terminal; the logs scroll by above them, or, when they go to a file, are hinted at."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._screen = Screen(stage.err, stage.out)
        self._progress: Progress | None = None
        self._is_displaced = False
        self._unshown: list[str] = []
        self._tail: deque[str] = deque(maxlen=_TAIL)

    def progressed(self, progress: Progress) -> None:
        before, self._progress = self._progress, progress
        # The row at the bottom is cut at the edge, and what is to be mended stands at its end as often as not.
        lasting = _lasting(progress)
        if lasting and (before is None or _lasting(before) != lasting):
            self.note(f"{progress.state}: {lasting}")
        self._is_displaced = self._is_displaced or is_displaced(progress)
        if self._is_displaced and progress.state == RUNNING and not standstill(progress):
            self._is_displaced = False
            self.note(f"{RUNNING}: {PLACED_AGAIN}")

    def said(self, replica: Replica, lines: Sequence[tuple[str, str]]) -> None:
        texts = [text for _, text in lines]
        if self._stage.terminal.shows_logs:
            self._unshown.append(prefixed(replica, texts, self._stage.terminal))
            return
        self._stage.said(prefixed(replica, texts, self._stage.terminal))
        self._tail.extend(f"[{replica}] {shown(text, colors=False)}" for text in texts[-_TAIL:])

    def note(self, text: str) -> None:
        self.tick()
        self._screen.clear()
        self._stage.err.write(f"{text}\n")
        self.tick()

    def tick(self) -> None:
        if self._unshown:
            self._screen.above("".join(self._unshown))
            self._unshown.clear()
        if self._progress is not None:
            room = size(self._stage.err)
            frame = Frame(width=room.columns, height=room.lines, now=self._stage.now(), tail=list(self._tail))
            self._screen.show(view(self._progress, frame, painter(colors=self._stage.terminal.colors_err)))

    def close(self) -> None:
        self.tick()
        self._screen.clear()
        self._stage.out.flush()
        self._progress = None


def _lasting(progress: Progress) -> str:
    """What whoever reads the terminal later must find there, too."""
    return standstill(progress) if is_displaced(progress) else progress.hindrance


def prefixed(replica: Replica, texts: Sequence[str], terminal: Terminal) -> str:
    """Whole lines, each with its replica in front. For a terminal without all that could change it."""
    paint = painter(colors=terminal.colors_out)
    prefix = paint(f"[{replica}]", REPLICA_TYPES.get(replica.type.word, ""))
    if terminal.shows_logs:
        texts = [shown(text, colors=terminal.colors_out) for text in texts]
    return "".join(f"{prefix} {text}\n" for text in texts)
