"""The progress bar of a simulation: on a terminal only, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tarragon.cli.output.terminal import Sink, sink_of

STEPS = 100
"""How often a bar is updated until it is full."""

Advance = Callable[[], None]


@contextmanager
def progress_bar(policy: str, jobs: int) -> Iterator[Advance]:
    """Show how many of the jobs have ended; the function that is yielded counts one more."""
    if sink_of(sys.stderr) is not Sink.TERMINAL:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{policy}, {jobs:,} jobs", total=jobs)
        step, ended = max(1, jobs // STEPS), 0

        def advance() -> None:
            nonlocal ended
            ended += 1
            if ended % step == 0:
                bar.update(task, completed=ended)

        yield advance
