"""A work queue of keys: deduplicated, one worker per key, exponential backoff on failures."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K")

INITIAL_BACKOFF = 0.05
MAX_BACKOFF = 300.0
MAX_BACKOFF_IF_CHANGED = 2.0


@dataclass(slots=True)
class WorkQueue(Generic[K]):
    """A passive queue: the caller passes the time and sleeps until `next_due`. Times are monotonic seconds."""

    max_backoff: float = MAX_BACKOFF
    _due: dict[K, float] = field(default_factory=dict)
    _order: list[tuple[float, int, K]] = field(default_factory=list)
    _sequence: int = 0
    _in_progress: set[K] = field(default_factory=set)
    _requeue_at: dict[K, float] = field(default_factory=dict)
    _failures: dict[K, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._due)

    def count_due(self, now: float) -> int:
        """Number of keys due at `now`. Looks at every key, so it is meant for metrics."""
        return sum(at <= now for at in self._due.values())

    def is_in_progress(self, key: K) -> bool:
        """Whether a worker has the key."""
        return key in self._in_progress

    @property
    def count_retrying(self) -> int:
        """Number of keys whose last attempt failed."""
        return len(self._failures)

    def add(self, key: K, at: float) -> None:
        """Queue the key for that time, or keep an earlier one; a key in progress is queued again on its release."""
        if key in self._in_progress:
            self._requeue_at[key] = min(at, self._requeue_at.get(key, at))
            return
        if key in self._due and self._due[key] <= at:
            return
        self._due[key] = at
        self._sequence += 1
        heapq.heappush(self._order, (at, self._sequence, key))

    def get(self, now: float) -> K | None:
        """The key that has been due longest, or None. Release it with `done` or `requeue`."""
        while self._order and self._order[0][0] <= now:
            at, _, key = heapq.heappop(self._order)
            if self._due.get(key) == at:
                del self._due[key]
                self._in_progress.add(key)
                return key
        return None

    def done(self, key: K) -> None:
        """Release the key after a success, and reset its backoff."""
        self._failures.pop(key, None)
        self._release(key)

    def requeue(self, key: K, now: float, *, at_least: float = 0.0) -> float:
        """Requeue after a delay that doubles with each consecutive failure, but soon if the key was added meanwhile.

        Returns the delay in seconds.
        """
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        longest = self.max_backoff
        if self._requeue_at.pop(key, None) is not None:
            # The change may fix the failure, but may also be our own write: retry soon, not at once.
            longest = min(longest, MAX_BACKOFF_IF_CHANGED)
        delay = max(at_least, min(longest, INITIAL_BACKOFF * 2.0 ** min(count, 20)))
        self._release(key)
        self.add(key, now + delay)
        return delay

    def next_due(self) -> float | None:
        """When the next key is due, or None if the queue is empty."""
        while self._order and self._due.get(self._order[0][2]) != self._order[0][0]:
            heapq.heappop(self._order)
        return self._order[0][0] if self._order else None

    def _release(self, key: K) -> None:
        self._in_progress.discard(key)
        if key in self._requeue_at:
            self.add(key, self._requeue_at.pop(key))
