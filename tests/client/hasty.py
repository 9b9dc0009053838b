"""A clock for tests in which nobody waits: who sleeps has slept."""

from __future__ import annotations

from tarragon.base.clock import FakeClock


class HastyClock(FakeClock):
    """`slept` are the pauses that were made."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)
