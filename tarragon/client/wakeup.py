"""A level-triggered wake-up signal for a loop that waits for work."""

from __future__ import annotations

import asyncio

from tarragon.base.clock import Clock


class WakeupSignal:
    """Stays set until it is silenced; can be set for good to end the loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._signal = asyncio.Event()
        self._has_ended = False

    @property
    def is_shut_down(self) -> bool:
        """Whether the signal is set for good: the loop must start nothing more."""
        return self._has_ended

    def set(self) -> None:
        """Wake the waiting loop; the signal stays set until `clear`."""
        self._signal.set()

    def shut_down(self) -> None:
        self._has_ended = True
        self._signal.set()

    def clear(self) -> None:
        if not self._has_ended:
            self._signal.clear()

    async def wait(self, seconds: float | None) -> None:
        """Return when the signal is set, or after that many of the clock's seconds."""
        if self._signal.is_set():
            return
        waits: list[asyncio.Task[bool] | asyncio.Task[None]] = [asyncio.create_task(self._signal.wait())]
        if seconds is not None:
            waits.append(asyncio.create_task(self._clock.sleep(seconds)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
