"""Detects work that hangs, for the liveness probe."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from tarragon.base.clock import Clock

MAX_WORK_SECONDS = 600.0
"""Seconds one piece of work may take: enough to write five hundred pods to a very slow API server."""
MAX_IDLE_SECONDS = 60.0
"""Seconds in which no work starts although some is due and a worker is free."""


class Watchdog:
    """Tracks work in progress. It runs on the event loop it watches: if the loop is stuck, the probe gets no answer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_at: dict[Hashable, float] = {}
        self._last_start = clock.monotonic()

    @property
    def in_progress(self) -> int:
        return len(self._started_at)

    def start(self) -> None:
        """Start the idle clock: from now on due work should start."""
        self._last_start = self._clock.monotonic()

    @contextmanager
    def track(self, name: Hashable) -> Iterator[None]:
        """Track a piece of work; at most one of each name at a time."""
        self._started_at[name] = self._last_start = self._clock.monotonic()
        try:
            yield
        finally:
            del self._started_at[name]

    def overdue(self) -> Iterator[str]:
        """Work that exceeds MAX_WORK_SECONDS, as text."""
        now = self._clock.monotonic()
        for name, started in self._started_at.items():
            if now - started > MAX_WORK_SECONDS:
                yield f"{name}: running for {now - started:.0f} s"

    def idle_seconds(self, due: float | None) -> float:
        """Seconds since `due` in which no work started; 0 if nothing is due."""
        if due is None:
            return 0.0
        return max(0.0, self._clock.monotonic() - max(due, self._last_start))
