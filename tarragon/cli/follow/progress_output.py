"""Prints the progress of a job: rows that are redrawn on a terminal, else one line per change."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO

from tarragon.base.escaping import write_verbatim
from tarragon.cli.follow.changes import is_preempted, progress_changes, stall_reason
from tarragon.cli.follow.view import ProgressFrame, progress_rows
from tarragon.cli.jobview.progress import RUNNING, SCHEDULED_AGAIN, Progress
from tarragon.cli.output.log_lines import last_state, terminal_text
from tarragon.cli.output.prose import prose_rows
from tarragon.cli.output.screen import LiveRows
from tarragon.cli.output.style import REPLICA_TYPES, painter
from tarragon.cli.output.terminal import Terminal, size
from tarragon.job.model import Replica
from tarragon.job.progress import amount_text, progress_text

TRAINING_SECONDS = 10.0
"""Seconds between two lines that say how far the training is, where each one stays."""
_TAIL = 5
"""Log lines that are shown below the replicas if stdout, with the logs, is not the terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputStreams:
    """The output streams, what they can show, and the clock."""

    out: TextIO
    err: TextIO
    terminal: Terminal
    now: Callable[[], dt.datetime]

    def write_logs(self, text: str) -> None:
        """Writes logs to stdout."""
        if self.terminal.shows_logs:
            self.out.write(text)
        else:
            write_verbatim(self.out, text)


class ProgressOutput(Protocol):
    """Prints the progress and logs of a job. Not thread-safe. `close` prints everything that is still buffered."""

    def show_progress(self, progress: Progress) -> None: ...

    def show_logs(self, replica: Replica, lines: Sequence[tuple[str, str]]) -> None: ...

    def show_note(self, text: str) -> None:
        """Prints a message on stderr."""
        ...

    def tick(self) -> None:
        """Redraws the screen, with the output since the last tick."""
        ...

    def close(self) -> None: ...


def progress_output_for(stage: OutputStreams) -> ProgressOutput:
    """Returns the output for this terminal."""
    if stage.terminal.is_quiet:
        return QuietOutput(stage)
    return LiveOutput(stage) if stage.terminal.is_live else LineOutput(stage)


class QuietOutput:
    """Prints the logs alone."""

    def __init__(self, stage: OutputStreams) -> None:
        self._stage = stage

    def show_progress(self, progress: Progress) -> None:
        pass

    def show_logs(self, replica: Replica, lines: Sequence[tuple[str, str]]) -> None:
        self._stage.write_logs(prefixed_lines(replica, [text for _, text in lines], self._stage.terminal))
        self._stage.out.flush()

    def show_note(self, text: str) -> None:
        pass

    def tick(self) -> None:
        pass

    def close(self) -> None:
        pass


class LineOutput(QuietOutput):
    """Prints one line per change, with the time: for CI, pipes and files. How far the training is, now and then.

    Of the bars in logs, it prints the last state alone: in a file, those of one epoch would be pages.
    """

    def __init__(self, stage: OutputStreams) -> None:
        super().__init__(stage)
        self._before: Progress | None = None
        self._shown_amount = ""
        self._shown_at: dt.datetime | None = None

    def show_logs(self, replica: Replica, lines: Sequence[tuple[str, str]]) -> None:
        super().show_logs(replica, [(stream, last_state(text)) for stream, text in lines])

    def show_progress(self, progress: Progress) -> None:
        for line in progress_changes(self._before, progress):
            self.show_note(line)
        self._before = progress
        self.tick()

    def tick(self) -> None:
        """Prints how far the training is once it has begun, if that has changed, at most every `TRAINING_SECONDS`."""
        if self._before is None or self._before.state != RUNNING or not (training := self._before.training):
            return
        now, amount = self._stage.now(), amount_text(training) if training.done else ""
        is_due = self._shown_at is None or (now - self._shown_at).total_seconds() >= TRAINING_SECONDS
        if is_due and amount != self._shown_amount and (text := progress_text(training, now)):
            self._shown_at, self._shown_amount = now, amount
            self.show_note(text)

    def show_note(self, text: str) -> None:
        self._stage.err.write(f"{self._stage.now():%H:%M:%S}Z  {text}\n")
        self._stage.err.flush()


class LiveOutput:
    """Redraws rows at the bottom of the terminal. Logs scroll above them; if they go to a file, the last lines show."""

    def __init__(self, stage: OutputStreams) -> None:
        self._stage = stage
        self._screen = LiveRows(stage.err, stage.out)
        self._progress: Progress | None = None
        self._is_displaced = False
        self._buffer: list[str] = []
        self._tail: deque[str] = deque(maxlen=_TAIL)

    def show_progress(self, progress: Progress) -> None:
        before, self._progress = self._progress, progress
        # The row at the bottom is cut at the edge, and the remedy is often at its end.
        reason = _stall_reason(progress)
        if reason and (before is None or _stall_reason(before) != reason):
            self.show_note(f"{progress.state}: {reason}")
        self._is_displaced = self._is_displaced or is_preempted(progress)
        if self._is_displaced and progress.state == RUNNING and not stall_reason(progress):
            self._is_displaced = False
            self.show_note(f"{RUNNING}: {SCHEDULED_AGAIN}")

    def show_logs(self, replica: Replica, lines: Sequence[tuple[str, str]]) -> None:
        texts = [text for _, text in lines]
        if self._stage.terminal.shows_logs:
            self._buffer.append(prefixed_lines(replica, texts, self._stage.terminal))
            return
        self._stage.write_logs(prefixed_lines(replica, texts, self._stage.terminal))
        self._tail.extend(f"[{replica}] {terminal_text(text, colors=False)}" for text in texts[-_TAIL:])

    def show_note(self, text: str) -> None:
        self.tick()
        self._screen.clear()
        self._stage.err.writelines(f"{row}\n" for row in prose_rows(text.split("\n"), self._stage.err))
        self.tick()

    def tick(self) -> None:
        if self._buffer:
            self._screen.print_above("".join(self._buffer))
            self._buffer.clear()
        if self._progress is not None:
            room = size(self._stage.err)
            frame = ProgressFrame(width=room.columns, height=room.lines, now=self._stage.now(), tail=list(self._tail))
            self._screen.show(progress_rows(self._progress, frame, painter(colors=self._stage.terminal.colors_err)))

    def close(self) -> None:
        self.tick()
        self._screen.clear()
        self._stage.out.flush()
        self._progress = None


def _stall_reason(progress: Progress) -> str:
    """Why the job makes no progress, if the user should also find it in the terminal's history later."""
    return stall_reason(progress) if is_preempted(progress) else progress.stall


def prefixed_lines(replica: Replica, texts: Sequence[str], terminal: Terminal) -> str:
    """Prefixes each line with its replica. Lines for a terminal are made safe."""
    paint = painter(colors=terminal.colors_out)
    prefix = paint(f"[{replica}]", REPLICA_TYPES.get(replica.type.lower(), ""))
    if terminal.shows_logs:
        texts = [terminal_text(text, colors=terminal.colors_out) for text in texts]
    return "".join(f"{prefix} {text}\n" for text in texts)
