"""Keys that want work: each at most once, none twice at a time, failures later and later."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K")

FIRST_DELAY = 0.05
LONGEST_DELAY = 300.0
SOON = 2.0


@dataclass(slots=True)
class WorkQueue(Generic[K]):
    """A value with a `next_due`, not a task: whoever owns it decides how time passes. Times are monotonic seconds."""

    _due: dict[K, float] = field(default_factory=dict)
    _order: list[tuple[float, int, K]] = field(default_factory=list)
    _tie: int = 0
    _taken: set[K] = field(default_factory=set)
    _again: dict[K, float] = field(default_factory=dict)
    _failures: dict[K, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._due)

    def due(self, now: float) -> int:
        """How many `take` would give by then. Looks at each: for whoever asks now and then."""
        return sum(at <= now for at in self._due.values())

    @property
    def retrying(self) -> int:
        """How many have failed and not gone well since."""
        return len(self._failures)

    def add(self, key: K, at: float) -> None:
        """Want work at that time, or earlier if that was said before; for a key at work, once more afterwards."""
        if key in self._taken:
            self._again[key] = min(at, self._again.get(key, at))
            return
        if key in self._due and self._due[key] <= at:
            return
        self._due[key] = at
        self._tie += 1
        heapq.heappush(self._order, (at, self._tie, key))

    def take(self, now: float) -> K | None:
        """The key that is due for longest, or None. Give it back with `done` or `failed`."""
        while self._order and self._order[0][0] <= now:
            at, _, key = heapq.heappop(self._order)
            if self._due.get(key) == at:
                del self._due[key]
                self._taken.add(key)
                return key
        return None

    def done(self, key: K) -> None:
        """The work went well; its earlier failures are forgotten."""
        self._failures.pop(key, None)
        self._release(key)

    def failed(self, key: K, now: float, *, at_least: float = 0.0) -> float:
        """Try again after a delay that doubles with each failure in a row, but soon if the key has changed meanwhile.

        Returns the delay in seconds.
        """
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        longest = LONGEST_DELAY
        if self._again.pop(key, None) is not None:
            # What changed meanwhile may be the cure, but may be our own doing, too: soon, not at once.
            longest = SOON
        delay = max(at_least, min(longest, FIRST_DELAY * 2.0 ** min(count, 20)))
        self._release(key)
        self.add(key, now + delay)
        return delay

    def next_due(self) -> float | None:
        """When `take` will have something, or None."""
        while self._order and self._due.get(self._order[0][2]) != self._order[0][0]:
            heapq.heappop(self._order)
        return self._order[0][0] if self._order else None

    def _release(self, key: K) -> None:
        self._taken.discard(key)
        if key in self._again:
            self.add(key, self._again.pop(key))
