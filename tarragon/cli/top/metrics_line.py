"""Extracts the training progress from log lines: epochs, steps and metrics. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from tarragon.cli.report.numbers import metrics_of_line
from tarragon.job.log_progress import LogProgress
from tarragon.job.progress import progress_text


def training_progress(unread: LogProgress, lines: Sequence[str], now: dt.datetime) -> str:
    """Return what these lines say, as `list` says it: `step 300/4,000 (7 %) · loss 0.213`; empty if they say nothing.

    Of a program that does not count, the newest metrics: `accuracy 0.97 · loss 0.08`.
    """
    printed = progress_text(unread.after(lines).progress(now), now)
    metrics = (metrics_of_line(line) for line in reversed(lines))
    return printed or " · ".join(f"{name} {value}" for name, value in next(filter(None, metrics), ()))
